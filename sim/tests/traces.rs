//! Readers of recordings: the reads of each format, and errors of one line for any damage.

mod common;

use std::io::{Cursor, Write};
use std::path::Path;

use common::{blocks, shared_trace};
use flate2::Compression;
use flate2::write::GzEncoder;
use foretell_policy::{Block, FileId, Nanos, ReaderId};
use foretell_sim::cache::{CacheOptions, CachePolicy, Hints};
use foretell_sim::trace::{Format, Place, Trace, TraceError, TraceRead};
use proptest::prelude::*;

/// Bytes of a block in these tests.
const BLOCK_BYTES: u64 = 8192;
const READ_10: u16 = 0x28;
const WRITE_10: u16 = 0x2a;

fn trace(bytes: &[u8], format: Format) -> Trace {
    let bytes = Cursor::new(bytes.to_vec());
    Trace::of(bytes, Path::new("t"), format, BLOCK_BYTES).expect("memory can be read")
}

fn reads(bytes: &[u8], format: Format) -> Result<Vec<TraceRead>, TraceError> {
    trace(bytes, format).collect()
}

fn all(trace: Trace) -> Vec<Block> {
    trace.into_reads().expect("well formed").blocks().collect()
}

fn block_reads(text: &str) -> Vec<Block> {
    all(trace(text.as_bytes(), Format::BLOCKS))
}

fn error(bytes: &[u8], format: Format) -> String {
    let error = reads(bytes, format).expect_err("malformed").to_string();
    assert!(!error.contains('\n'), "{error:?}");
    error
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(bytes).expect("memory can be written");
    encoder.finish().expect("memory can be written")
}

/// A request as recorded by versions 1 and 2: sector, bytes, microseconds.
fn record(version: u16, command: u16, sector: u64, bytes: u32, time_us: u64) -> Vec<u8> {
    let (ver, pieces) = ((version << 8).to_le_bytes(), 1u32.to_le_bytes());
    let (command, bytes) = (command.to_le_bytes(), bytes.to_le_bytes());
    let (sector, time, number) = (sector.to_le_bytes(), time_us.to_le_bytes(), [0xf4, 0, 0, 0x80]);
    match version {
        1 => [&number[..], &bytes, &pieces, &command, &ver, &sector, &time].concat(),
        _ => [&command[..], &ver, &number, &bytes, &pieces, &sector, &time, &[7; 8]].concat(),
    }
}

fn read_at(time_ns: u64, first_block: u64, blocks: u64) -> TraceRead {
    TraceRead { time: Nanos(time_ns), reader: ReaderId(0), file: FileId(0), first_block, blocks }
}

#[test]
fn block_ids() {
    assert_eq!(block_reads("\n"), []);
    assert_eq!(error(b"", Format::BLOCKS), "t: is empty");
    assert_eq!(block_reads("3\n\n 1 \r\n3"), blocks([3, 1, 3]));
    assert_eq!(block_reads("9223372036854775807\n"), blocks([i64::MAX as u64]));
}

#[test]
fn block_ids_that_are_none() {
    let wanted =
        "is not a block id (a whole number from 0 to 2^63-1); is the file of another format?";
    for (text, line, found) in [
        ("1\n-5\n", 2, "-5"),
        ("1\n\n+5\n", 3, "+5"),
        ("9223372036854775808", 1, "9223372036854775808"),
        ("99999999999999999999", 1, "99999999999999999999"),
        ("1 2", 1, "1 2"),
        ("0x10", 1, "0x10"),
        ("１", 1, "１"),
    ] {
        let expected = format!("t: line {line}: {found:?} {wanted}");
        assert_eq!(error(text.as_bytes(), Format::BLOCKS), expected);
    }
    let long = error(&[b'1'; 5000], Format::BLOCKS);
    assert_eq!(long, "t: line 1: longer than 4096 bytes; is the file of another format?");
    assert!(error(&[0xff, 0, 1, b'\n'], Format::BLOCKS).starts_with(r#"t: line 1: "�\0\u{1}" is"#));
}

#[test]
fn what_comes_before_the_damage_is_given_and_nothing_after_it() {
    let mut trace = trace(b"1\n2\nx\n3\n", Format::BLOCKS);
    assert_eq!(trace.next().map(Result::ok), Some(Some(read_at(0, 1, 1))));
    assert_eq!(trace.next().map(Result::ok), Some(Some(read_at(0, 2, 1))));
    assert!(matches!(trace.next(), Some(Err(TraceError::Malformed { place: Place::Line(3), .. }))));
    assert!(trace.next().is_none());
}

#[test]
fn compression_is_told_by_content() {
    let text = b"1\n2\n3\n";
    let expected = blocks([1, 2, 3]);
    let compressed = gzip(text);
    let two_members = [gzip(b"1\n2"), gzip(b"\n3\n")].concat();
    for bytes in [&text[..], &compressed, &two_members] {
        assert_eq!(all(trace(bytes, Format::BLOCKS)), expected);
    }
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("plain.gz");
    std::fs::write(&path, text).expect("written");
    let trace = Trace::open(&path, Format::BLOCKS, 1).expect("it opens");
    assert_eq!(all(trace), expected);
}

/// A record of oracleGeneral.
fn object(time_s: u32, id: u64, next: i64) -> Vec<u8> {
    let size = 1u32 << 24;
    [&time_s.to_le_bytes()[..], &id.to_le_bytes(), &size.to_le_bytes(), &next.to_le_bytes()]
        .concat()
}

#[test]
fn objects_are_blocks_in_the_order_of_their_first_requests() {
    let (first, second) = (u64::MAX, 7);
    let records =
        [object(10, first, 2), object(10, second, -1), object(13, first, i64::MAX)].concat();
    let reads = reads(&records, Format::ORACLE_GENERAL).expect("well formed");
    let found: Vec<(u64, u64)> = reads.iter().map(|read| (read.time.0, read.first_block)).collect();
    assert_eq!(found, [(0, 0), (0, 1), (3_000_000_000, 0)]);
    let past = [object(10, first, 1), object(11, first, 0)].concat();
    assert!(
        error(&past, Format::ORACLE_GENERAL).contains("record 2: not a record of oracleGeneral")
    );
    let cut = error(&records[..60], Format::ORACLE_GENERAL);
    assert!(cut.contains("record 3: cut off after 12 of 24 bytes"), "{cut}");
}

/// Also if their bytes look like a version of vscsi.
#[test]
fn objects_are_no_requests_of_a_disk() {
    for version in [1u8, 2] {
        for place in [3, 15] {
            for count in 1..20 {
                let mut records: Vec<u8> = (0..count).flat_map(|at| object(at, 1, -2)).collect();
                records.chunks_mut(24).for_each(|record| {
                    record[place] = version;
                    record[..3].fill(0);
                });
                let told = error(&records, Format::VSCSI);
                assert!(
                    told.contains("oracleGeneral") && told.contains("oracle-general"),
                    "{told}"
                );
            }
        }
    }
}

#[test]
fn zstd_is_read_frame_by_frame() {
    use ruzstd::encoding::{CompressionLevel, compress_to_vec};
    let pack = |text: &[u8]| compress_to_vec(text, CompressionLevel::Fastest);
    let skippable = [&[0x51, 0x2a, 0x4d, 0x18, 3, 0, 0, 0][..], b"any"].concat();
    let long: String = (0..40_000).map(|id| format!("{id}\n")).collect();
    let [one, two] = [pack(b"1\n2"), pack(b"\n3\n")];
    let packed = [&one[..], &skippable, &two, &skippable].concat();
    assert_eq!(all(trace(&packed, Format::BLOCKS)), blocks([1, 2, 3]));
    let packed = pack(long.as_bytes());
    assert_eq!(all(trace(&packed, Format::BLOCKS)), blocks(0..40_000));
    for (cut, damaged) in
        [(packed.len() / 2, false), (packed.len() - 1, false), (packed.len(), true)]
    {
        let mut packed = packed[..cut].to_vec();
        if damaged {
            packed[cut / 2] ^= 0x55;
        }
        let told = error(&packed, Format::BLOCKS);
        assert!(told.contains("the zstd data is damaged or cut off"), "{told}");
    }
}

#[test]
fn other_kinds_of_files_are_called_by_their_names() {
    let vscsi = [record(1, READ_10, 5, 512, 9), record(1, READ_10, 5, 512, 9)].concat();
    let darshan = b"3.41\0\0\0\0\x37\x35\x64\0\0\0\0\0rest";
    let table: [(&[u8], &str); 29] = [
        (b"\xfd7zXZ\0\0\x04", "xz -dc"),
        (b"BZh91AY&SY", "bzip2 -dc"),
        (b"\x04\x22\x4d\x18\x64", "lz4 -dc"),
        (b"PK\x03\x04\x14\0", "unzip -p"),
        (darshan, "darshan-dxt-parser"),
        (b"\x07tae\0\0\0\0", "data of blktrace: run blkparse"),
        (b"PERFILE2\x68\0", "perf"),
        (b"\xd4\xc3\xb2\xa1\x02\0", "pcap"),
        (b"\xff\xfe1\0\n\0", "iconv -f UTF-16"),
        (b"PAR1\x15\x04", "parquet"),
        (b"fio version 2 iolog\n/dev/sda add\n", "fio"),
        (b"128166372003061629,hm,1,Read,383496192,32768,113736\n1,hm,1,Read,3,2,1\n", "CSV"),
        (b"  8,0    3        1     0.000000000   697  Q   R 223490 + 8 [kjournald]\n", "blkparse"),
        (b"0.023000\t0\t4096\t8\t1\n", "DiskSim"),
        (b"TIME(s)     COMM           PID    DISK    T SECTOR     BYTES  LAT(ms)\n", "biosnoop"),
        (b"__libc_start_main(0x401, 1, 0x7ff) = 0\nfopen(\"a\", \"r\") = 0x55\n", "ltrace"),
        (b"   0.000 ( 0.004 ms): cat/123 openat(dfd: CWD, filename: \"a\") = 3\n", "perf trace"),
        (b"# tracer: nop\n#\n", "ftrace"),
        (b"{\"a\": 1}\n", "begins as JSON"),
        (b"<!DOCTYPE html>\n", "HTML"),
        (b"# foretell trace 1\n1 1 1 0 512\n", "--format foretell"),
        (b"# DXT, file_id: 1, file_name: /a\n", "--format dxt"),
        (b"# darshan log version: 3.41\n", "--format dxt"),
        (b"7 100.000000 openat(AT_FDCWD, \"/f\", O_RDONLY) = 3 <0.000010>\n", "--format strace"),
        (&vscsi, "--format vscsi"),
        (&object(1, 5, -2), "--format oracle-general"),
        (b"0 1 5219 1\n0 2 27840 1\n", "webcachesim"),
        (b"12\n13\n", "--format blocks reads"),
        (b"!<arch>\n", "archive"),
    ];
    for (bytes, expected) in table {
        let is_other = |format: &&Format| !expected.contains(&format!("--format {format}"));
        for &format in Format::ALL.iter().filter(is_other) {
            let told = error(bytes, format);
            assert!(told.starts_with("t: ") && told.contains(expected), "{format}: {told}");
            // The error is the same if the file is compressed.
            assert_eq!(error(&gzip(bytes), format), told);
        }
    }
}

#[test]
fn a_damaged_recording_is_not_taken_for_another() {
    let ids: String = (0..3000).map(|id| format!("{id}\n")).collect();
    let told = error(format!("{ids}x\n").as_bytes(), Format::BLOCKS);
    assert!(told.starts_with("t: line 3001: \"x\" is not a block id"), "{told}");
    let mut requests = record(1, READ_10, 5, 512, 9).repeat(1000);
    requests[32 * 900 + 15] = 9;
    let told = error(&requests, Format::VSCSI);
    assert!(told.starts_with("t: record 901: "), "{told}");
}

#[test]
fn a_byte_order_mark_and_ends_of_lines_of_another_system_are_passed_over() {
    let own = b"\xef\xbb\xbf# foretell trace 1\r\n1 1 1 0 8192\r\n";
    assert_eq!(reads(own, Format::FORETELL).expect("well formed").len(), 1);
    assert_eq!(all(trace(b"\xef\xbb\xbf1\r\n2\r\n", Format::BLOCKS)), blocks([1, 2]));
}

#[test]
fn damaged_compression() {
    let lines: String = (0..50_000).map(|i| format!("{}\n", i * 7919 % 65_537)).collect();
    let whole = gzip(lines.as_bytes());
    for length in [2, 5, 30, whole.len() / 2, whole.len() - 9, whole.len() - 1] {
        let error = error(&whole[..length], Format::BLOCKS);
        assert!(error.starts_with("t: after line "), "{error}");
        assert!(error.contains("the gzip data is damaged or cut off"), "{error}");
        assert!(error.ends_with("get the file again"), "{error}");
    }
    let mut wrong_sum = whole.clone();
    let at = whole.len() - 6;
    wrong_sum[at] ^= 1;
    assert!(error(&wrong_sum, Format::BLOCKS).starts_with("t: after line 50000: the gzip data"));
}

#[test]
fn a_file_that_cannot_be_opened() {
    let error = Trace::open(Path::new("/nowhere/t"), Format::BLOCKS, 1).err().expect("not there");
    assert!(matches!(error, TraceError::Open { .. }));
    assert!(error.to_string().starts_with("/nowhere/t: No such file"), "{error}");
    let error = Trace::open(Path::new("/"), Format::BLOCKS, 1).err().expect("a folder");
    assert!(error.to_string().starts_with("/: Is a directory"), "{error}");
}

#[test]
fn vscsi_of_both_versions() {
    for version in [1, 2] {
        let requests = [
            record(version, WRITE_10, 0, 512, 1_000),
            record(version, READ_10, 16, 8192, 1_500),
            record(version, 0x08, 15, 1024, 2_000),
            record(version, 0xa8, 0, 65_536, 1_000),
            record(version, 0x88, 33, 0, 3_000),
            record(version, 0x88, 33, 512, 4_000),
            record(version, 0x2f, 33, 512, 5_000),
        ];
        let mut trace = trace(&requests.concat(), Format::VSCSI);
        let found: Vec<TraceRead> = trace.by_ref().map(|read| read.expect("well formed")).collect();
        let expected = [
            read_at(500_000, 1, 1),
            read_at(1_000_000, 0, 2),
            read_at(0, 0, 8),
            read_at(3_000_000, 2, 1),
        ];
        assert_eq!(found, expected);
        assert_eq!(trace.place(), Place::Record(7));
    }
    assert_eq!(error(b"", Format::VSCSI), "t: is empty");
}

#[test]
fn damaged_vscsi() {
    let (one, two) = (record(1, READ_10, 1, 512, 1), record(2, READ_10, 1, 512, 1));
    let twice_and_a_half = [&one[..], &one, &one[..13]].concat();
    let cut_off = "t: record 3: cut off after 13 of 32 bytes; get the file again";
    assert_eq!(error(&twice_and_a_half, Format::VSCSI), cut_off);
    let cut_off = "t: record 1: cut off after 33 of 40 bytes; get the file again";
    assert_eq!(error(&two[..33], Format::VSCSI), cut_off);
    let cut_off = "t: record 1: cut off after 3 of 32 bytes; get the file again";
    assert_eq!(error(&two[..3], Format::VSCSI), cut_off);
    let unknown =
        "t: record 1: not a vscsi record of version 1 or 2; is the file of another format?";
    assert_eq!(error(&[0; 64], Format::VSCSI), unknown);
    assert_eq!(
        error("12\n".repeat(40).as_bytes(), Format::VSCSI),
        "t: block ids: --format blocks reads them"
    );
    let mixed = "t: record 2: not a vscsi record of version 1 as before; the file is damaged";
    assert_eq!(error(&[one.clone(), two].concat(), Format::VSCSI), mixed);
    let beyond = "t: record 2: a read that ends beyond byte 2^63; the file is damaged, or its blocks are smaller";
    for sector in [1 << 55, (1 << 55) - 1] {
        let far = [one.clone(), record(1, READ_10, sector, 1024, 1)].concat();
        assert_eq!(error(&far, Format::VSCSI), beyond);
    }
}

#[test]
fn our_own_format() {
    let text = "# foretell trace 1\n# a remark\n\n5 1 7 0 4096\n6\t2  7 8191 2\n7 1 7 0 0\n";
    let found = reads(text.as_bytes(), Format::FORETELL).expect("well formed");
    let read = |time, reader, blocks| TraceRead {
        time: Nanos(time),
        reader: ReaderId(reader),
        file: FileId(7),
        first_block: 0,
        blocks,
    };
    assert_eq!(found, [read(5, 1, 1), read(6, 2, 2)]);
    assert_eq!(reads(b"# foretell trace 1", Format::FORETELL).expect("well formed"), []);
}

#[test]
fn our_own_format_damaged() {
    let table = [
        ("", "is empty"),
        ("1\n", "block ids: --format blocks reads them"),
        ("x\n", r#"line 1: "x" is not `# foretell trace 1`; is the file of another format?"#),
        (
            "# foretell trace 12\n",
            r##"line 1: "# foretell trace 12" is not `# foretell trace 1`; is the file of another format?"##,
        ),
        (
            "# foretell trace 1\n1 2 3 4\n",
            "line 2: 4 fields, not the 5 of `time_ns reader file offset_bytes length_bytes`",
        ),
        (
            "# foretell trace 1\n#\n1 2 3 -4 5\n",
            r#"line 3: "-4" is not an offset_bytes (a whole number from 0 on); is the file of another format?"#,
        ),
        (
            "# foretell trace 1\n1 2 3 18446744073709551615 1\n",
            "line 2: a read that ends beyond byte 2^63; the file is damaged, or its blocks are smaller",
        ),
        (
            "# foretell trace 1\n1 2 3 0 2147483649\n",
            "line 2: a read of 2147483649 bytes; one read has at most 2147483648",
        ),
        (
            "# foretell trace 1\n1 2 3 0 4096\n2 2 3 4096 40",
            "line 3: the last line has no end: the file is cut off; get it again, or end the line if it is whole",
        ),
    ];
    for (text, expected) in table {
        assert_eq!(error(text.as_bytes(), Format::FORETELL), format!("t: {expected}"));
    }
}

#[test]
fn a_real_disk() {
    let Some(path) = shared_trace("cloudphysics.vscsi.gz") else { return };
    let mut trace = Trace::open(&path, Format::VSCSI, BLOCK_BYTES).expect("it opens");
    let mut last = Nanos::ZERO;
    let mut count = 0;
    for read in trace.by_ref() {
        let read = read.expect("well formed");
        assert!(read.time >= last && (1..=10).contains(&read.blocks), "{read:?}");
        last = read.time;
        count += 1;
    }
    assert_eq!((count, trace.place()), (46_974, Place::Record(113_872)));
    assert_eq!(last.as_secs().round(), 7112.0, "of two hours");
}

#[test]
fn real_references() {
    let table = [
        ("lirs-sprite", 133_996, Some(7_075)),
        ("lirs-cpp", 9_047, None),
        ("lirs-gli", 6_015, None),
        ("lirs-ps", 10_448, None),
    ];
    for (name, count, distinct) in table {
        let Some(path) = shared_trace(&format!("{name}.trace.gz")) else { continue };
        let trace = Trace::open(&path, Format::BLOCKS, BLOCK_BYTES).expect("it opens");
        let mut reads = all(trace);
        assert_eq!(reads.len(), count, "{name}");
        reads.sort();
        reads.dedup();
        assert_eq!(reads.len(), distinct.unwrap_or(reads.len()), "{name}");
    }
}

#[test]
fn the_examples_of_each_format_are_read_and_recognised() {
    for &format in Format::ALL {
        let examples = format.examples();
        assert!(!examples.is_empty(), "the constant of format {format} needs `examples`");
        for example in &examples {
            let found = reads(example, format);
            let is_read = found.as_ref().is_ok_and(|reads| !reads.is_empty());
            assert!(is_read, "an example of {format} has no reads: {found:?}");
            for &other in Format::ALL.iter().filter(|&&other| other != format) {
                if let Err(told) = reads(example, other) {
                    let told = told.to_string();
                    let right = format!("--format {format} ");
                    assert!(told.contains(&right), "`is_of` or `foreign` of {format}: {told}");
                }
            }
        }
    }
}

/// Bytes that look like a recording up to some damage: an example of the format, and more lines or bytes.
fn damaged(format: Format) -> impl Strategy<Value = Vec<u8>> {
    let bytes = prop::collection::vec(any::<u8>(), 0..300);
    let lines = r"([0-9]{1,20}[ \t\n]{1,2}|[-#+\x00\r\n]){0,60}";
    let is_text = matches!(trace(b"", format).place(), Place::Line(_));
    let example = prop::sample::select(format.examples());
    (0usize..5, example, bytes, lines, any::<prop::sample::Index>()).prop_map(
        move |(kind, example, bytes, lines, at)| {
            let more = if is_text { lines.as_bytes() } else { &bytes };
            let mut whole = match kind {
                0 => bytes.clone(),
                1 => lines.into_bytes(),
                _ => [&example[..], more].concat(),
            };
            if kind == 4 {
                whole = gzip(&whole);
            }
            if let Some(&byte) = bytes.first()
                && !whole.is_empty()
            {
                let at = at.index(whole.len());
                whole[at] ^= byte;
            }
            whole
        },
    )
}

/// Damaged recordings of each format.
const DAMAGED_EACH: u32 = 80;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(DAMAGED_EACH * Format::ALL.len() as u32))]

    #[test]
    fn no_bytes_are_too_much(
        (format, bytes) in prop::sample::select(Format::ALL)
            .prop_flat_map(|format| (Just(format), damaged(format))),
        block_bytes in prop::sample::select(&[1u64, 512, 8192, u64::MAX][..]),
    ) {
        let input = Cursor::new(bytes);
        let trace = Trace::of(input, Path::new("t"), format, block_bytes).expect("memory");
        let mut over = false;
        for read in trace {
            prop_assert!(!over, "nothing comes after an error");
            match read {
                Ok(read) => {
                    prop_assert!(read.blocks > 0);
                    prop_assert!(read.first_block.checked_add(read.blocks - 1).is_some());
                }
                Err(error) => {
                    over = true;
                    prop_assert!(!error.to_string().contains('\n'), "{error}");
                }
            }
        }
    }

    #[test]
    fn what_is_written_is_read(
        ids in prop::collection::vec(0..=i64::MAX as u64, 1..200), compressed: bool,
    ) {
        let text: String = ids.iter().map(|id| format!("{id}\n")).collect();
        let bytes = if compressed { gzip(text.as_bytes()) } else { text.into_bytes() };
        let found = all(trace(&bytes, Format::BLOCKS));
        prop_assert_eq!(found, blocks(ids));
    }
}

#[test]
fn a_few_reads_of_very_many_blocks_take_the_memory_of_a_few() {
    let lines: String = (0..200).map(|at| format!("{at} 1 {at} 0 {}\n", 2u64 << 30)).collect();
    let text = format!("# foretell trace 1\n{lines}");
    let trace = Trace::of(Cursor::new(text), Path::new("t"), Format::FORETELL, 512);
    let reads = trace.expect("memory can be read").into_reads().expect("well formed");
    assert_eq!((reads.len(), reads.runs_held()), (200 << 22, 200));
    for policy in CachePolicy::all() {
        let (capacity_blocks, hints) = (100, Hints::All);
        let options = CacheOptions { policy, capacity_blocks, hints, depth_blocks: None };
        assert!(reads.len() > options.reads_max(), "{policy}");
        let factor =
            reads.factor_for(options.reads_max(), 1 << 17).expect("blocks that are enough");
        assert!(reads.len() / factor <= options.reads_max());
    }
}
