//! Recognises files that are not in the expected format, and says what to do with them.
//!
//! * A: Some kinds begin with bytes that no recording begins with. Such a file is refused before it is decoded.
//! * B: Other kinds are recognised by their first lines: recordings of each [`Format`], then texts and tables
//!   of other programs. They are looked for only after decoding has failed, so that no readable recording is
//!   refused.
//!
//! Another kind of file needs one more row. A new format needs none here, because its constant of [`Format`]
//! says how it is recognised.

use super::{Format, dxt, strace};

/// Bytes at the beginning of a file that are examined.
pub(super) const PREFIX_BYTES: usize = 4096;

/// Digits of the largest 64-bit number.
const DIGITS_MAX: usize = 20;

/// A kind of file, and what to do with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Foreign {
    /// The kind, as the user knows it.
    pub what: &'static str,
    /// What the user can do.
    pub way_out: &'static str,
}

const fn packed(what: &'static str, way_out: &'static str) -> Foreign {
    Foreign { what, way_out }
}

/// A. Kinds by their first bytes.
const BEGINNINGS: &[(&[u8], Foreign)] = &[
    (
        b"\xfd7zXZ\0",
        packed(
            "compressed with xz",
            "pipe in the output of `xz -dc FILE`, with - as the recording",
        ),
    ),
    (
        b"BZh",
        packed(
            "compressed with bzip2",
            "pipe in the output of `bzip2 -dc FILE`, with - as the recording",
        ),
    ),
    (
        b"\x04\x22\x4d\x18",
        packed(
            "compressed with lz4",
            "pipe in the output of `lz4 -dc FILE`, with - as the recording",
        ),
    ),
    (
        b"\x02\x21\x4c\x18",
        packed(
            "compressed with lz4",
            "pipe in the output of `lz4 -dc FILE`, with - as the recording",
        ),
    ),
    (
        b"\x5d\0\0",
        packed(
            "compressed with lzma",
            "pipe in the output of `xz -dc FILE`, with - as the recording",
        ),
    ),
    (
        b"\x1f\x9d",
        packed(
            "compressed with compress",
            "pipe in the output of `zcat FILE`, with - as the recording",
        ),
    ),
    (
        b"\xff\x06\0\0sNaPpY",
        packed(
            "compressed with snappy",
            "pipe in the output of `snzip -dc FILE`, with - as the recording",
        ),
    ),
    (
        b"PK\x03\x04",
        packed("a zip archive", "pipe in the output of `unzip -p FILE`, with - as the recording"),
    ),
    (
        b"7z\xbc\xaf\x27\x1c",
        packed("a 7z archive", "pipe in the output of `7z x -so FILE`, with - as the recording"),
    ),
    (b"PERFILE2", packed("data of perf", "record with `strace -f -ttt -T -y -o FILE PROGRAM`")),
    (
        b"\xd4\xc3\xb2\xa1",
        packed("packets of a network (pcap)", "record what a program reads, as with strace"),
    ),
    (
        b"\xa1\xb2\xc3\xd4",
        packed("packets of a network (pcap)", "record what a program reads, as with strace"),
    ),
    (
        b"\x0a\x0d\x0d\x0a",
        packed("packets of a network (pcapng)", "record what a program reads, as with strace"),
    ),
    (
        b"\x07tae",
        packed(
            "data of blktrace",
            "run blkparse on it; docs/internals/simulator.md has a line of awk for its output",
        ),
    ),
    (b"\x7fELF", packed("a program", "record a run of it, and give the recording")),
    (b"PAR1", packed("a parquet table", TABLE)),
    (b"SQLite format 3\0", packed("an SQLite database", TABLE)),
    (b"\x89HDF\r\n", packed("an HDF5 file", TABLE)),
    (b"\x93NUMPY", packed("an array of numpy", TABLE)),
    (
        b"\xff\xfe",
        packed(
            "text in UTF-16",
            "pipe in the output of `iconv -f UTF-16 -t UTF-8 FILE`, with - as the recording",
        ),
    ),
    (
        b"\xfe\xff",
        packed(
            "text in UTF-16",
            "pipe in the output of `iconv -f UTF-16 -t UTF-8 FILE`, with - as the recording",
        ),
    ),
    (b"!<arch>\n", packed("an archive of ar", "give a recording")),
];

const TABLE: &str = "convert its reads to `# foretell trace 1` and lines of: time_ns reader file offset_bytes length_bytes (--format foretell)";
const CONVERSION: &str =
    "docs/internals/simulator.md has a line of awk that converts it to --format foretell";

/// A. A Darshan log begins with its version, such as `3.41`, padded to 8 bytes.
const DARSHAN: Foreign = Foreign {
    what: "a Darshan log",
    way_out: "run darshan-dxt-parser on it first, and give its text to `foretell sim replay --format dxt`",
};

/// B. A kind that is recognised by its first lines, and is read by no [`Format`].
struct Kind {
    /// The `--format` of `foretell sim replay` that reads it, if there is one.
    format: &'static str,
    is_of: fn(&[u8]) -> bool,
    foreign: Foreign,
}

/// B. In this order; the first match counts.
const KINDS: &[Kind] = &[
    Kind {
        format: "dxt",
        is_of: |prefix| dxt::is_of(prefix),
        foreign: Foreign {
            what: "DXT of Darshan",
            way_out: "`foretell sim replay --format dxt` reads it",
        },
    },
    Kind {
        format: "",
        is_of: |prefix| lines(prefix).next().is_some_and(|line| line.starts_with(b"fio version")),
        foreign: Foreign { what: "a log of fio's reads (iolog)", way_out: TABLE },
    },
    Kind {
        format: "",
        is_of: |prefix| {
            any_line(prefix, |line| {
                contains(line, b"__libc_start_main(") || contains(line, b"SYS_")
            })
        },
        foreign: Foreign {
            what: "output of ltrace",
            way_out: "record with `strace -f -ttt -T -y -o FILE PROGRAM`",
        },
    },
    Kind {
        format: "",
        is_of: |prefix| {
            any_line(prefix, |line| {
                contains(line, b" ms): ") && line.ends_with(b")")
                    || contains(line, b" ms): ") && contains(line, b") = ")
            })
        },
        foreign: Foreign {
            what: "output of perf trace",
            way_out: "record with `strace -f -ttt -T -y -o FILE PROGRAM`",
        },
    },
    Kind {
        format: "strace",
        is_of: |prefix| strace::is_of(prefix),
        foreign: Foreign {
            what: "output of strace",
            way_out: "`foretell sim replay --format strace` reads it, if it was recorded with -ttt",
        },
    },
    Kind {
        format: "",
        is_of: |prefix| first_line(prefix).starts_with(b"TIME(s)") && contains(prefix, b"SECTOR"),
        foreign: Foreign { what: "output of biosnoop", way_out: CONVERSION },
    },
    Kind {
        format: "",
        is_of: |prefix| first_line(prefix).starts_with(b"# tracer:"),
        foreign: Foreign {
            what: "a trace of the kernel (ftrace)",
            way_out: "record with `strace -f -ttt -T -y -o FILE PROGRAM`",
        },
    },
    Kind {
        format: "",
        is_of: |prefix| is_blkparse(first_line(prefix)),
        foreign: Foreign { what: "output of blkparse", way_out: CONVERSION },
    },
    Kind {
        format: "",
        is_of: |prefix| is_disksim(first_line(prefix)),
        foreign: Foreign { what: "a trace of DiskSim (ASCII)", way_out: CONVERSION },
    },
    Kind {
        format: "",
        is_of: |prefix| matches!(first_line(prefix), [b'{' | b'[', ..]),
        foreign: Foreign { what: "text that begins as JSON does", way_out: TABLE },
    },
    Kind {
        format: "",
        is_of: |prefix| first_line(prefix).starts_with(b"<"),
        foreign: Foreign { what: "XML or HTML", way_out: "get the file itself, or record anew" },
    },
    Kind {
        format: "",
        is_of: |prefix| prefix.get(257..262) == Some(b"ustar"),
        foreign: Foreign {
            what: "a tar archive",
            way_out: "pipe in the output of `tar -xOf FILE NAME`, with - as the recording",
        },
    },
    Kind {
        format: "",
        is_of: |prefix| is_table(prefix, b','),
        foreign: Foreign { what: "a table with commas (CSV)", way_out: TABLE },
    },
    Kind {
        format: "",
        is_of: is_numbers,
        foreign: Foreign {
            what: "a table of numbers, such as webcachesim's (time, object, size)",
            way_out: "keep only its column of objects (`awk '{ print $2 }' FILE`), for --format blocks",
        },
    },
];

/// A. The kind of a file that begins with `prefix` and cannot be a recording.
pub(super) fn refused(prefix: &[u8]) -> Option<Foreign> {
    let known = BEGINNINGS.iter().find(|(begin, _)| prefix.starts_with(begin));
    let darshan = is_darshan(prefix).then_some(DARSHAN);
    known.map(|&(_, foreign)| foreign).or(darshan)
}

/// B. The kind of a malformed file that begins with `prefix`; `None` if it looks like a file of `format`.
pub(super) fn recognised(prefix: &[u8], format: &str) -> Option<Foreign> {
    let formats = Format::ALL.iter().map(|known| (known.name, known.is_of, known.foreign));
    let kinds = KINDS.iter().map(|kind| (kind.format, kind.is_of, kind.foreign));
    let (name, _, foreign) = formats.chain(kinds).find(|(_, is_of, _)| is_of(prefix))?;
    (name != format).then_some(foreign)
}

fn is_darshan(prefix: &[u8]) -> bool {
    matches!(prefix, [b'1'..=b'9', b'.', b'0'..=b'9', b'0'..=b'9', 0, ..])
}

/// The lines without surrounding white space and without blank lines; the last may be cut off.
fn lines(prefix: &[u8]) -> impl Iterator<Item = &[u8]> {
    prefix.split(|&byte| byte == b'\n').map(<[u8]>::trim_ascii).filter(|line| !line.is_empty())
}

pub(super) fn first_line(prefix: &[u8]) -> &[u8] {
    lines(prefix).next().unwrap_or_default()
}

fn any_line(prefix: &[u8], is: impl Fn(&[u8]) -> bool) -> bool {
    lines(prefix).any(is)
}

fn contains(text: &[u8], wanted: &[u8]) -> bool {
    text.windows(wanted.len()).any(|part| part == wanted)
}

fn words(line: &[u8]) -> Vec<&[u8]> {
    line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty()).collect()
}

fn is_number(word: &[u8]) -> bool {
    str::from_utf8(word).is_ok_and(|word| word.parse::<f64>().is_ok())
}

/// `8,0  3  1  0.000000000  697  Q  R 223490 + 8 [kjournald]`.
fn is_blkparse(line: &[u8]) -> bool {
    let words = words(line);
    let is_device = |word: &[u8]| {
        let mut parts = word.split(|&byte| byte == b',');
        let is_part = |part: Option<&[u8]>| {
            part.is_some_and(|part| !part.is_empty() && part.iter().all(u8::is_ascii_digit))
        };
        is_part(parts.next()) && is_part(parts.next()) && parts.next().is_none()
    };
    words.len() >= 7
        && is_device(words[0])
        && words[1..5].iter().all(|word| is_number(word))
        && words[5].iter().all(u8::is_ascii_uppercase)
}

/// `0.123 0 4096 8 1`: time, device, block, size, flags.
fn is_disksim(line: &[u8]) -> bool {
    let words = words(line);
    words.len() == 5 && words.iter().all(|word| is_number(word)) && words[0].contains(&b'.')
}

/// Whether the first lines all have the same number of separators, at least one.
fn is_table(prefix: &[u8], between: u8) -> bool {
    // The last line may be cut off.
    let whole = match prefix.iter().rposition(|&byte| byte == b'\n') {
        Some(end) => &prefix[..end],
        None if prefix.len() >= PREFIX_BYTES => return false,
        None => prefix,
    };
    let count = |line: &[u8]| line.iter().filter(|&&byte| byte == between).count();
    let first = count(first_line(whole));
    first > 0 && lines(whole).all(|line| count(line) == first) && prefix.is_ascii()
}

/// Whether the first line is three or more whole numbers.
fn is_numbers(prefix: &[u8]) -> bool {
    let first = words(first_line(prefix));
    first.len() >= 3 && first.iter().all(|word| is_whole(word))
}

/// Whether each line is one whole number.
pub(super) fn is_block_ids(prefix: &[u8]) -> bool {
    !first_line(prefix).is_empty() && lines(prefix).all(is_whole)
}

/// Whether a word is a whole number.
fn is_whole(word: &[u8]) -> bool {
    word.len() <= DIGITS_MAX && word.iter().all(u8::is_ascii_digit)
}
