//! The C header and its Rust mirror agree, field by field.

mod support;

use std::fmt::Write as _;
use std::mem::{offset_of, size_of};
use std::process::Command;

use foretell_protocol::layout::*;

/// Writes "name value" lines as `tests/c/layout.c` does.
macro_rules! numbers {
    ($out:ident: $($name:ident)*) => { $(writeln!($out, "{} {}", stringify!($name), $name).unwrap();)* };
}
macro_rules! structure {
    ($out:ident: $name:literal $raw:ident: $($field:ident)*) => {
        writeln!($out, "sizeof {} {}", $name, size_of::<$raw>()).unwrap();
        $(writeln!($out, "{}.{} {}", $name, stringify!($field), offset_of!($raw, $field)).unwrap();)*
    };
}

#[test]
fn both_sides_agree_on_every_byte() {
    let mut ours = String::new();
    numbers!(ours: PROTOCOL_VERSION RING_MAGIC RING_CAPACITY_RECORDS RING_HEADER_BYTES RECORD_BYTES
        RING_BYTES STALL_THRESHOLD_NS COPY_BYTES_PER_NS RECORD_READ RECORD_OPEN
        RECORD_TOUCH RECORD_PATH RECORD_ADVICE INTEREST_READS INTEREST_NAMES INTEREST_MPI INTEREST_MPI_LAUNCHED TOUCH_STAT TOUCH_LINK TOUCH_OPEN TOUCH_FOLDER TOUCH_MOVED TOUCH_FAILED TOUCH_DESCRIPTOR BASE_WORKING_FOLDER TOUCH_PATH_BYTES PART_PATH_BYTES TOUCHED_PATH_MAX_BYTES ADVICE_NEEDED ADVICE_SEQUENTIAL ADVICE_RANDOM ADVICE_ONCE ADVICE_NORMAL NO_DESCRIPTOR
        FLAG_STDIO FLAG_POSITIONED FLAG_SHARED
        FLAG_FAILED FLAG_SIZED MESSAGE_HELLO MESSAGE_HINT MESSAGE_CANCEL MESSAGE_REQUEST MESSAGE_MAX_BYTES PATH_MAX_BYTES
        COMM_BYTES STREAM_EXTERNAL HINT_WHOLE_FILE HINT_ANY_ORDER HINT_STRIDED HELLO_PROGRAM SOCKET_VARIABLE PRELOAD_VARIABLE SOCKET_PREFIX);
    structure!(ours: "record" RawRecord: sequence kind flags device inode offset_bytes length_bytes
        end_ns duration_ns);
    structure!(ours: "touch" RawTouch: sequence kind flags end_ns duration_ns base opened path_bytes path);
    structure!(ours: "path_part" RawPathPart: sequence kind part path);
    structure!(ours: "advice" RawAdvice: sequence kind advice device inode offset_bytes length_bytes
        descriptor);
    structure!(ours: "ring_header" RawRingHeader: magic version capacity_records record_bytes
        header_bytes interest manager_ended manager_hears skips_repeated head tail read_calls read_bytes read_stall_ns read_stalls
        open_calls open_stall_ns open_stalls name_calls name_stall_ns name_stalls other_read_bytes dropped_records programs_left_alone
        programs_skipped programs_followed silent executed);
    structure!(ours: "message_header" RawMessageHeader: kind total_bytes);
    structure!(ours: "hello" RawHello: header version pid ppid argv0_bytes comm flags);
    structure!(ours: "hint" RawHint: header stream flags repeat path_bytes segment_count);
    structure!(ours: "segment" RawSegment: offset_bytes length_bytes);
    structure!(ours: "cancel" RawCancel: header stream);
    structure!(ours: "request" RawRequest: header stream bytes);

    let program = support::c_program("layout", &["-std=c11", "-Wextra", "-Werror"]);
    let theirs = support::succeed(&mut Command::new(program)).stdout;
    assert_eq!(String::from_utf8_lossy(&theirs), ours);
}
