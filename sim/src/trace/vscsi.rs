//! `vscsi`: the SCSI requests of a virtual machine's disk, as VMware's tracer records them and libCacheSim
//! publishes them.
//!
//! Binary little-endian records of fixed size, in one of two versions; the upper byte of a record's `ver` is
//! the version.
//!
//! ```text
//! version 1, 32 bytes: sn u32, len u32, nSG u32, cmd u16, ver u16, lbn u64, ts u64
//! version 2, 40 bytes: cmd u16, ver u16, sn u32, len u32, nSG u32, lbn u64, ts u64, rt u64
//! ```
//!
//! `len` is in bytes, `lbn` in sectors of 512 bytes, and `ts` in microseconds. Requests whose `cmd` is a SCSI
//! READ command are reads; all others are skipped. Time counts from the first request. The disk is file 0.
//!
//! The first record decides the version. Version 1 is tried first. In a record of version 2, the byte at that
//! place is the highest of `nSG`, the number of memory segments of a request, which never reaches 2^24. A
//! command is one byte; if the high byte of `cmd` is not 0, the file is of another kind.

use foretell_policy::{FileId, Nanos, ReaderId};

use super::error::{Fault, Place};
use super::foreign::{Foreign, PREFIX_BYTES};
use super::input::{Input, Stop};
use super::{Decoder, Format, TraceRead, touched};
use crate::SECTOR_BYTES;

/// READ(6), READ(10), READ(12), READ(16) (SCSI Block Commands, operation codes).
const READ_COMMANDS: [u16; 4] = [0x08, 0x28, 0xa8, 0x88];
/// Describes the first record in messages.
const RECORD: &str = "a vscsi record of version 1 or 2";
/// Bytes of a record of version 1.
const V1_BYTES: usize = 32;
/// Bytes of a record of version 2.
const V2_BYTES: usize = 40;

#[derive(Clone, Copy)]
enum Version {
    V1,
    V2,
}

impl Version {
    fn number(self) -> u8 {
        match self {
            Version::V1 => 1,
            Version::V2 => 2,
        }
    }

    /// Whether `record`, of at least [`V1_BYTES`], is of this version.
    fn is_of(self, record: &[u8]) -> bool {
        let (version, command) = match self {
            Version::V1 => (record[15], record[13]),
            Version::V2 => (record[3], record[1]),
        };
        version == self.number() && command == 0
    }

    fn record_bytes(self) -> usize {
        match self {
            Version::V1 => V1_BYTES,
            Version::V2 => V2_BYTES,
        }
    }
}

/// Whether a file that begins with `prefix` is of this format: all whole records have the same version.
fn is_of(prefix: &[u8]) -> bool {
    [Version::V1, Version::V2].into_iter().any(|version| {
        let mut records = prefix.chunks_exact(version.record_bytes());
        let is_whole = prefix.len() >= PREFIX_BYTES || records.remainder().is_empty();
        is_whole && records.len() > 0 && records.all(|record| version.is_of(record))
    })
}

/// The fields of a request that are used.
struct Request {
    command: u16,
    length_bytes: u32,
    sector: u64,
    time_us: u64,
}

impl Request {
    fn of(record: &[u8; V2_BYTES], version: Version) -> Self {
        let (command, length, sector, time) = match version {
            Version::V1 => (12, 4, 16, 24),
            Version::V2 => (0, 8, 16, 24),
        };
        Request {
            command: u16::from_le_bytes(bytes_at(record, command)),
            length_bytes: u32::from_le_bytes(bytes_at(record, length)),
            sector: u64::from_le_bytes(bytes_at(record, sector)),
            time_us: u64::from_le_bytes(bytes_at(record, time)),
        }
    }
}

fn bytes_at<const N: usize>(record: &[u8; V2_BYTES], at: usize) -> [u8; N] {
    std::array::from_fn(|i| record[at + i])
}

impl Format {
    /// See `sim/src/trace/vscsi.rs`.
    pub const VSCSI: Format = Format {
        name: "vscsi",
        about: "binary records of a virtual disk's requests, of version 1 or 2; only reads count",
        place: Place::Record,
        has_own_blocks: false,
        has_files: false,
        decoder: |block_bytes| Box::new(Vscsi::new(block_bytes)),
        is_of,
        foreign: Foreign {
            what: "requests of a virtual disk (vscsi)",
            way_out: "--format vscsi reads it",
        },
        examples: || {
            // READ(10) of 512 bytes at sector 5, in each version.
            let (count, length, sector) = (1u32.to_le_bytes(), 512u32.to_le_bytes(), 5u64);
            let (command, time) = (0x28u16.to_le_bytes(), 9u64.to_le_bytes());
            let (sector, v1, v2) = (sector.to_le_bytes(), [0, 1], [0, 2]);
            let v1 = [&count[..], &length, &count, &command, &v1, &sector, &time].concat();
            let v2 = [&command[..], &v2, &count, &length, &count, &sector, &time, &time].concat();
            vec![v1.repeat(3), v2.repeat(3)]
        },
    };
}

/// See the [module](self).
struct Vscsi {
    block_bytes: u64,
    version: Option<Version>,
    begin_us: Option<u64>,
}

impl Vscsi {
    fn new(block_bytes: u64) -> Self {
        Vscsi { block_bytes, version: None, begin_us: None }
    }

    fn next_request(&mut self, input: &mut Input) -> Result<Option<Request>, Stop> {
        let mut record = [0; V2_BYTES];
        let version = match self.version {
            None => {
                if !input.record(&mut record[..V1_BYTES])? {
                    return Ok(None);
                }
                let versions = [Version::V1, Version::V2];
                let version = versions.into_iter().find(|version| version.is_of(&record));
                let version = version.ok_or(Fault::Record { wanted: RECORD })?;
                if let Version::V2 = version {
                    input.rest(&mut record, V1_BYTES)?;
                }
                version
            }
            Some(version) => {
                if !input.record(&mut record[..version.record_bytes()])? {
                    return Ok(None);
                }
                version
            }
        };
        if !version.is_of(&record) {
            return Err(Fault::OtherVersion { version: version.number() }.into());
        }
        self.version = Some(version);
        Ok(Some(Request::of(&record, version)))
    }
}

impl Decoder for Vscsi {
    fn next_read(&mut self, input: &mut Input) -> Result<Option<TraceRead>, Stop> {
        while let Some(request) = self.next_request(input)? {
            let begin_us = *self.begin_us.get_or_insert(request.time_us);
            if !READ_COMMANDS.contains(&request.command) {
                continue;
            }
            let offset_bytes = request.sector.checked_mul(SECTOR_BYTES).ok_or(Fault::Beyond)?;
            let touched = touched(offset_bytes, request.length_bytes.into(), self.block_bytes);
            let (first_block, blocks) = touched.ok_or(Fault::Beyond)?;
            let time = Nanos(request.time_us.saturating_sub(begin_us).saturating_mul(1000));
            let (reader, file) = (ReaderId(0), FileId(0));
            if blocks > 0 {
                return Ok(Some(TraceRead { time, reader, file, first_block, blocks }));
            }
        }
        Ok(None)
    }
}
