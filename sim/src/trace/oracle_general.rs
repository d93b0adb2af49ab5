//! `oracle-general`: requests for objects, in the format in which libCacheSim publishes traces (oracleGeneral).
//!
//! Binary records of 24 bytes, little endian:
//!
//! ```text
//! clock_time u32, obj_id u64, obj_size u32, next_access_vtime i64
//! ```
//!
//! `clock_time` is in seconds. `next_access_vtime` is the number of the record that requests the same object
//! next. It is −1, −2 or 2^63−1 if there is none.
//!
//! Each object is a block of file 0, whatever its size, as with libCacheSim's `--ignore-obj-size 1`. Ids may be
//! hashes, so blocks are numbered in the order of the objects' first requests. This takes about 40 bytes for
//! each object.
//!
//! A record whose next request lies in the past is malformed. This check distinguishes the format from others.

use std::collections::HashMap;

use foretell_policy::{FileId, Nanos, ReaderId};

use super::error::{Fault, Place};
use super::foreign::{Foreign, PREFIX_BYTES};
use super::input::{Input, Stop};
use super::{Decoder, Format, TraceRead};

/// Bytes of a record.
const RECORD_BYTES: usize = 24;
/// Describes a record in messages.
const RECORD: &str = "a record of oracleGeneral: its next request lies in the past";
/// More records than any file has.
const RECORDS_MAX: u64 = 1 << 48;
/// Values of `next_access_vtime` for an object that is never requested again.
const NEVER: [i64; 3] = [-1, -2, i64::MAX];

impl Format {
    /// See `sim/src/trace/oracle_general.rs`.
    pub const ORACLE_GENERAL: Format = Format {
        name: "oracle-general",
        about: "libCacheSim's binary records of requests; each object is a block, whatever its size",
        place: Place::Record,
        has_own_blocks: true,
        has_files: false,
        decoder: |_| Box::new(OracleGeneral::default()),
        is_of,
        foreign: Foreign {
            what: "a trace of libCacheSim (oracleGeneral)",
            way_out: "--format oracle-general reads it",
        },
        examples: || {
            // One object, requested three times.
            let record = |next: i64| {
                let (time, id, size) = (1u32.to_le_bytes(), 9u64.to_le_bytes(), 4096u32);
                [&time[..], &id, &size.to_le_bytes(), &next.to_le_bytes()].concat()
            };
            vec![[record(1), record(2), record(-2)].concat()]
        },
    };
}

/// See the [module](self).
#[derive(Default)]
struct OracleGeneral {
    /// Block numbers by object id.
    objects: HashMap<u64, u64>,
    begin_s: Option<u32>,
}

/// The time and the object of record `number`, which counts from 0; `None` if the record is malformed.
fn request(number: u64, record: &[u8; RECORD_BYTES]) -> Option<(u32, u64)> {
    let [time, object, _size, next] = [0..4, 4..12, 12..16, 16..24].map(|field| {
        record[field].iter().rev().fold(0, |value, &byte| value << 8 | u64::from(byte))
    });
    let next = next.cast_signed();
    let is_later = u64::try_from(next).is_ok_and(|next| (number..RECORDS_MAX).contains(&next));
    (is_later || NEVER.contains(&next)).then_some((time as u32, object))
}

/// Whether a file that begins with `prefix` is of this format: times do not fall, and every next request lies
/// ahead within the largest file.
fn is_of(prefix: &[u8]) -> bool {
    if prefix.len() < PREFIX_BYTES && !prefix.len().is_multiple_of(RECORD_BYTES) {
        return false;
    }
    let records = prefix.chunks_exact(RECORD_BYTES).zip(0..);
    let requests = records.map(|(record, number)| request(number, record.try_into().ok()?));
    let times: Option<Vec<u32>> = requests.map(|request| Some(request?.0)).collect();
    times.is_some_and(|times| !times.is_empty() && times.is_sorted())
}

impl Decoder for OracleGeneral {
    fn next_read(&mut self, input: &mut Input) -> Result<Option<TraceRead>, Stop> {
        let mut record = [0; RECORD_BYTES];
        let number = input.taken();
        if !input.record(&mut record)? {
            return Ok(None);
        }
        let (time_s, object) = request(number, &record).ok_or(Fault::Record { wanted: RECORD })?;
        let begin_s = *self.begin_s.get_or_insert(time_s);
        let next = self.objects.len() as u64;
        let first_block = *self.objects.entry(object).or_insert(next);
        let time = Nanos(u64::from(time_s.saturating_sub(begin_s)) * 1_000_000_000);
        let (reader, file) = (ReaderId(0), FileId(0));
        Ok(Some(TraceRead { time, reader, file, first_block, blocks: 1 }))
    }
}
