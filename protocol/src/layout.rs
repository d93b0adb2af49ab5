//! The mirror of `include/foretell_protocol.h`, which says what each byte means.
//!
//! `tests/layout.rs` compiles a C program against the header and compares every size, offset and constant, so the two cannot
//! drift apart.

/// Raised with every change that an older peer would misread.
pub const PROTOCOL_VERSION: u32 = 2;
/// The environment variable that names the manager's socket.
pub const SOCKET_VARIABLE: &str = "FORETELL_SOCKET";
/// The environment variable with the parameters of the interposing library; the header describes them.
pub const PRELOAD_VARIABLE: &str = "FORETELL_PRELOAD";
/// Prefix of every manager's abstract socket name.
pub const SOCKET_PREFIX: &str = "foretell/";
/// "foretell" as a little-endian number.
pub const RING_MAGIC: u64 = 0x6c6c_6574_6572_6f66;
/// Records in a ring; a power of two.
pub const RING_CAPACITY_RECORDS: u32 = 2048;
/// Places for files that are executed again and again, in a ring's header.
pub const EXECUTED_PLACES: u32 = 16;

/// Bytes before the first record.
pub const RING_HEADER_BYTES: u32 = 4096;
/// Bytes of one record.
pub const RECORD_BYTES: u32 = 64;
/// Bytes of a ring.
pub const RING_BYTES: u32 = RING_HEADER_BYTES + RING_CAPACITY_RECORDS * RECORD_BYTES;
/// A call that takes longer has waited for I/O.
pub const STALL_THRESHOLD_NS: u64 = 50_000;
/// Lower bound on the speed of copying from memory.
pub const COPY_BYTES_PER_NS: u64 = 2;

/// How long a call that returned `bytes` bytes may take without having waited for I/O.
pub fn stall_threshold_ns(bytes: u64) -> u64 {
    STALL_THRESHOLD_NS + bytes / COPY_BYTES_PER_NS
}
/// Record kind: a read.
pub const RECORD_READ: u32 = 1;
/// Record kind: an open.
pub const RECORD_OPEN: u32 = 2;
/// Record kind: a call that named a path.
pub const RECORD_TOUCH: u32 = 3;
/// Record kind: further bytes of the path of the record before it.
pub const RECORD_PATH: u32 = 4;
/// Record kind: the program's own advice.
pub const RECORD_ADVICE: u32 = 5;
/// Interest in reads and opens.
pub const INTEREST_READS: u32 = 1;
/// Interest in calls that name a path.
pub const INTEREST_NAMES: u32 = 2;
/// No records: the library for MPI-IO goes along.
pub const INTEREST_MPI: u32 = 4;
/// No records: the library for MPI-IO goes along with what `mpiexec` and the like start.
pub const INTEREST_MPI_LAUNCHED: u32 = 8;
/// Touch flag: attributes were asked for.
pub const TOUCH_STAT: u32 = 1;
/// Touch flag: a symbolic link was read.
pub const TOUCH_LINK: u32 = 2;
/// Touch flag: it was opened for reading, and is no folder.
pub const TOUCH_OPEN: u32 = 4;
/// Touch flag: a folder was opened.
pub const TOUCH_FOLDER: u32 = 8;
/// Touch flag: it was made the working folder.
pub const TOUCH_MOVED: u32 = 16;
/// Touch flag: the call failed.
pub const TOUCH_FAILED: u32 = 32;
/// Touch flag: the base is a descriptor of a folder whose opening is not known.
pub const TOUCH_DESCRIPTOR: u32 = 64;
/// The base of a relative path, if there is no other.
pub const BASE_WORKING_FOLDER: u32 = 0;
/// Bytes of a path in its first slot.
pub const TOUCH_PATH_BYTES: u32 = 20;
/// Bytes of a path in each further slot.
pub const PART_PATH_BYTES: u32 = 48;
/// Longer paths are not recorded.
pub const TOUCHED_PATH_MAX_BYTES: u32 = 1024;
/// Advice: the range will be read soon.
pub const ADVICE_NEEDED: u32 = 1;
/// Advice: the range will be read in order.
pub const ADVICE_SEQUENTIAL: u32 = 2;
/// Advice: the range will be read in no order.
pub const ADVICE_RANDOM: u32 = 3;
/// Advice: the range will be read once.
pub const ADVICE_ONCE: u32 = 4;
/// Advice: no advice any more.
pub const ADVICE_NORMAL: u32 = 5;
/// Stands for no descriptor.
pub const NO_DESCRIPTOR: u64 = u64::MAX;
/// Record flag: the offset is the descriptor's, ahead of the program by the stdio buffer.
pub const FLAG_STDIO: u32 = 1;
/// Record flag: the call named its own offset.
pub const FLAG_POSITIONED: u32 = 2;
/// Record flag: the offset was asked from the kernel after the call.
pub const FLAG_SHARED: u32 = 4;
/// Record flag: the open failed.
pub const FLAG_FAILED: u32 = 8;
/// Record flag: an open that tells the file's time and size in place of offset and length.
pub const FLAG_SIZED: u32 = 16;
/// Message kind: a program introduces itself.
pub const MESSAGE_HELLO: u32 = 1;
/// Message kind: a disclosure.
pub const MESSAGE_HINT: u32 = 2;
/// Message kind: a stream's outstanding hints are void.
pub const MESSAGE_CANCEL: u32 = 3;
/// `struct foretell_request`.
pub const MESSAGE_REQUEST: u32 = 4;
/// Most bytes of a message.
pub const MESSAGE_MAX_BYTES: u32 = 65_536;
/// Most bytes of a path in a message.
pub const PATH_MAX_BYTES: u32 = 4096;
/// Bytes of a command name.
pub const COMM_BYTES: u32 = 16;
/// The manager's stream that belongs to no connection.
pub const STREAM_EXTERNAL: u64 = 0;
/// Hint flag: the whole file is meant.
pub const HINT_WHOLE_FILE: u32 = 1;
/// Hint flag: the parts may be read in any order.
pub const HINT_ANY_ORDER: u32 = 2;
/// Hint flag: equally spaced segments like the first one. The second one holds the stride: its offset is the distance from one
/// segment to the next in bytes, its length is the number of segments.
pub const HINT_STRIDED: u32 = 4;

/// Hello flag: sent at the start of a program, and not by a forked child.
pub const HELLO_PROGRAM: u32 = 1;

/// `struct foretell_record`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
#[expect(missing_docs, reason = "each field is described in the C header")]
pub struct RawRecord {
    pub sequence: u64,
    pub kind: u32,
    pub flags: u32,
    pub device: u64,
    pub inode: u64,
    pub offset_bytes: u64,
    pub length_bytes: u64,
    pub end_ns: u64,
    pub duration_ns: u64,
}

/// `struct foretell_touch`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
#[expect(missing_docs, reason = "each field is described in the C header")]
pub struct RawTouch {
    pub sequence: u64,
    pub kind: u32,
    pub flags: u32,
    pub end_ns: u64,
    pub duration_ns: u64,
    pub base: u32,
    pub opened: u32,
    pub path_bytes: u32,
    pub path: [u8; TOUCH_PATH_BYTES as usize],
}

/// `struct foretell_path_part`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[expect(missing_docs, reason = "each field is described in the C header")]
pub struct RawPathPart {
    pub sequence: u64,
    pub kind: u32,
    pub part: u32,
    pub path: [u8; PART_PATH_BYTES as usize],
}

/// `struct foretell_advice`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
#[expect(missing_docs, reason = "each field is described in the C header")]
pub struct RawAdvice {
    pub sequence: u64,
    pub kind: u32,
    pub advice: u32,
    pub device: u64,
    pub inode: u64,
    pub offset_bytes: u64,
    pub length_bytes: u64,
    pub descriptor: u64,
    pub reserved: u64,
}

/// `struct foretell_ring_header`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[expect(missing_docs, reason = "each field is described in the C header")]
pub struct RawRingHeader {
    pub magic: u64,
    pub version: u32,
    pub capacity_records: u32,
    pub record_bytes: u32,
    pub header_bytes: u32,
    pub reserved0: [u8; 40],
    pub interest: u32,
    pub manager_ended: u32,
    pub manager_hears: u32,
    pub skips_repeated: u32,
    pub reserved1: [u8; 48],
    pub head: u64,
    pub reserved2: [u8; 56],
    pub tail: u64,
    pub reserved3: [u8; 56],
    pub read_calls: u64,
    pub read_bytes: u64,
    pub read_stall_ns: u64,
    pub read_stalls: u64,
    pub reserved4: [u8; 32],
    pub open_calls: u64,
    pub open_stall_ns: u64,
    pub open_stalls: u64,
    pub reserved5: [u8; 40],
    pub name_calls: u64,
    pub name_stall_ns: u64,
    pub name_stalls: u64,
    pub reserved7: [u8; 40],
    pub other_read_bytes: u64,
    pub dropped_records: u64,
    pub programs_left_alone: u64,
    pub programs_skipped: u64,
    pub programs_followed: u64,
    pub silent: u32,
    pub reserved6: [u8; 20],
    pub executed: [RawExecuted; EXECUTED_PLACES as usize],
}

/// `struct foretell_executed`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[expect(missing_docs, reason = "each field is described in the C header")]
pub struct RawExecuted {
    pub file: u64,
    pub times: u64,
}

/// `struct foretell_message_header`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
#[expect(missing_docs, reason = "each field is described in the C header")]
pub struct RawMessageHeader {
    pub kind: u32,
    pub total_bytes: u32,
}

/// `struct foretell_hello`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
#[expect(missing_docs, reason = "each field is described in the C header")]
pub struct RawHello {
    pub header: RawMessageHeader,
    pub version: u32,
    pub pid: u32,
    pub ppid: u32,
    pub argv0_bytes: u32,
    pub comm: [u8; COMM_BYTES as usize],
    pub flags: u32,
}

/// `struct foretell_hint`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
#[expect(missing_docs, reason = "each field is described in the C header")]
pub struct RawHint {
    pub header: RawMessageHeader,
    pub stream: u64,
    pub flags: u32,
    pub repeat: u32,
    pub path_bytes: u32,
    pub segment_count: u32,
}

/// `struct foretell_segment`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
#[expect(missing_docs, reason = "each field is described in the C header")]
pub struct RawSegment {
    pub offset_bytes: u64,
    pub length_bytes: u64,
}

/// `struct foretell_cancel`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
#[expect(missing_docs, reason = "each field is described in the C header")]
pub struct RawCancel {
    pub header: RawMessageHeader,
    pub stream: u64,
}

/// `struct foretell_request`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
#[expect(missing_docs, reason = "each field is described in the C header")]
pub struct RawRequest {
    pub header: RawMessageHeader,
    pub stream: u64,
    pub bytes: u64,
}
