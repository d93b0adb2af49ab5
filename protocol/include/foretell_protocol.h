/*
 * Layout shared by programs and the manager: the control messages and the shared-memory ring.
 *
 * Decides: the size, offset and meaning of every byte that crosses a process boundary. This is the
 * one definition; protocol/src/layout.rs mirrors it, and a test compares both field by field.
 *
 * How: A. A program connects to the manager's control socket (AF_UNIX, SOCK_SEQPACKET, abstract
 * name), sends one HELLO that carries the descriptor of its ring, and closes both. B. The program
 * writes records and counters to the ring; the manager reads them. C. A program that discloses what
 * it will read sends HINT and CANCEL messages on a connection of its own.
 *
 * Invariants: all integers have the machine's byte order (both sides run on one machine); every
 * structure is free of padding; memory that is all zero after the first cache line is a valid empty
 * ring, so that starting a program does not touch the ring's pages.
 *
 * What may fail: either side may die at any instruction, and either side may be hostile. The manager
 * trusts no index and no length; the program never waits for the manager.
 */
#ifndef FORETELL_PROTOCOL_H
#define FORETELL_PROTOCOL_H

#include <stddef.h>
#include <stdint.h>

/* Raised with every change of this file that an older peer would misread. */
#define FORETELL_PROTOCOL_VERSION 2u

/* Names the manager's socket, for programs that hint: the abstract name, without its leading NUL byte.
 * A program that is executed with an empty value is left alone. */
#define FORETELL_SOCKET_VARIABLE "FORETELL_SOCKET"
/*
 * Parameters of the interposing library when it is preloaded. The library hides this variable, and its own
 * entry of LD_PRELOAD, before the program's first instruction. The value is six numbers in hexadecimal,
 * each followed by a dot, and then the manager's address as in FORETELL_SOCKET:
 *   the interest (FORETELL_INTEREST_…) until the manager has had time to say its own in the ring
 *   number of seccomp filters that foretell itself was under
 *   device and inode of the library
 *   device and inode of the program's dynamic linker, which is known to fit
 */
#define FORETELL_PRELOAD_VARIABLE "FORETELL_PRELOAD"
/* Followed by `<uid>/<pid>-<random hex>`. */
#define FORETELL_SOCKET_PREFIX "foretell/"

/* "foretell" read as a little-endian number. */
#define FORETELL_RING_MAGIC UINT64_C(0x6c6c657465726f66)
/* Records in a ring; a power of two. A program that reads warm pages as fast as it can fills 2048 in
 * some 10 ms, which is several polls of the manager. */
#define FORETELL_RING_CAPACITY_RECORDS 2048u
/* The header has a page of its own. */
#define FORETELL_RING_HEADER_BYTES 4096u
#define FORETELL_RECORD_BYTES 64u
#define FORETELL_RING_BYTES                                                                        \
    (FORETELL_RING_HEADER_BYTES + FORETELL_RING_CAPACITY_RECORDS * FORETELL_RECORD_BYTES)

/* A call that takes longer has waited for I/O: a warm call on page cache takes 0.2 to 20 µs, the
 * fastest device some 50 µs and more. */
#define FORETELL_STALL_THRESHOLD_NS UINT64_C(50000)
/* Copying takes time too. 2 bytes a nanosecond is slower than any memory in use. */
#define FORETELL_COPY_BYTES_PER_NS UINT64_C(2)

/* What the manager wants to know, besides counters and advice: bits. */
#define FORETELL_INTEREST_READS 1u /* READ and OPEN records */
#define FORETELL_INTEREST_NAMES 2u /* TOUCH records */
/* No records: the library for MPI-IO goes along, from the same folder; the same for what mpiexec and the like start. */
#define FORETELL_INTEREST_MPI 4u
#define FORETELL_INTEREST_MPI_LAUNCHED 8u

/* Kinds of records. */
#define FORETELL_RECORD_READ 1u
#define FORETELL_RECORD_OPEN 2u
#define FORETELL_RECORD_TOUCH 3u  /* struct foretell_touch */
#define FORETELL_RECORD_PATH 4u   /* struct foretell_path_part */
#define FORETELL_RECORD_ADVICE 5u /* struct foretell_advice */

/* Record flags. */
/* The offset is the descriptor's, which is ahead of the program by the bytes in stdio's buffer. */
#define FORETELL_FLAG_STDIO 1u
/* The call named its own offset (pread and its kin); the descriptor's position did not move. */
#define FORETELL_FLAG_POSITIONED 2u
/* The offset was asked from the kernel after the call, since a duplicate or another process shares the
 * descriptor's position. A concurrent reader may have moved it. */
#define FORETELL_FLAG_SHARED 4u
/* An open record of an open that failed (only failures that stalled are recorded). */
#define FORETELL_FLAG_FAILED 8u
/* An open record that tells the file's time and size. A file that was opened only for reading has it, if the kernel knew both
 * without asking a server. */
#define FORETELL_FLAG_SIZED 16u

/* One call of the program. */
struct foretell_record {
    uint64_t sequence;     /* ticket + 1, stored last (release): the slot is complete */
    uint32_t kind;         /* FORETELL_RECORD_… */
    uint32_t flags;        /* FORETELL_FLAG_… */
    uint64_t device;       /* st_dev; 0 if not known (open records) */
    uint64_t inode;        /* st_ino; 0 if not known (open records) */
    uint64_t offset_bytes; /* where the call read. Of an open with FLAG_SIZED: the file's time of modification in nanoseconds
                              since 1970, as int64_t */
    uint64_t length_bytes; /* number of bytes it returned; 0 at the end of the file. Of such an open: the file's size */
    uint64_t end_ns;       /* CLOCK_MONOTONIC at return; 0 if the call was not timed */
    uint64_t duration_ns;  /* 0 if the call was not timed */
};

/* What a call did with the path of a TOUCH record: bits. */
#define FORETELL_TOUCH_STAT 1u /* asked for attributes (stat and its kin, access) */
#define FORETELL_TOUCH_LINK 2u /* read a symbolic link */
#define FORETELL_TOUCH_OPEN 4u /* opened it for reading; it is no folder */
#define FORETELL_TOUCH_FOLDER 8u /* opened a folder, in order to list it or as a base of other paths */
#define FORETELL_TOUCH_MOVED 16u /* made it the working folder */
#define FORETELL_TOUCH_FAILED 32u /* the call failed */
/* The base is a descriptor of a folder whose opening is not known. */
#define FORETELL_TOUCH_DESCRIPTOR 64u

/* The base of a relative path: the working folder, if there is no other. */
#define FORETELL_BASE_WORKING_FOLDER 0u

#define FORETELL_TOUCH_PATH_BYTES 20u
#define FORETELL_PART_PATH_BYTES 48u
/* Longer paths are not recorded. */
#define FORETELL_TOUCHED_PATH_MAX_BYTES 1024u

/*
 * A call that named a path. It takes one slot, and further ones of kind PATH for the bytes of the path beyond the first
 * FORETELL_TOUCH_PATH_BYTES, reserved together with it. A folder that the process opens gets a number, never 0, by which later
 * records name it as their base; a duplicate of the descriptor has the same one. Numbers are a process's own: a forked
 * child begins with new ones. Calls that take a descriptor in place of a path (fchdir, fdopendir) have the path "."
 * relative to it.
 */
struct foretell_touch {
    uint64_t sequence;
    uint32_t kind;
    uint32_t flags;       /* FORETELL_TOUCH_… */
    uint64_t end_ns;      /* CLOCK_MONOTONIC at return */
    uint64_t duration_ns;
    uint32_t base;        /* of a relative path: FORETELL_BASE_WORKING_FOLDER, or the number of a folder, or a descriptor */
    uint32_t opened;      /* the number of the folder that was opened; else 0 */
    uint32_t path_bytes;  /* without a NUL byte */
    char path[FORETELL_TOUCH_PATH_BYTES];
};

/* Further bytes of the path of the TOUCH record before it. */
struct foretell_path_part {
    uint64_t sequence;
    uint32_t kind;
    uint32_t part; /* 1 for the first one */
    char path[FORETELL_PART_PATH_BYTES];
};

/* The program's own advice about what it will read. NEEDED, and advice about memory, is recorded whether or not there is
 * interest, the rest while there is some. */
#define FORETELL_ADVICE_NEEDED 1u /* POSIX_FADV_WILLNEED, MADV_WILLNEED, MADV_POPULATE_READ, MAP_POPULATE, readahead */
#define FORETELL_ADVICE_SEQUENTIAL 2u
#define FORETELL_ADVICE_RANDOM 3u
#define FORETELL_ADVICE_ONCE 4u /* POSIX_FADV_NOREUSE */
#define FORETELL_ADVICE_NORMAL 5u

#define FORETELL_NO_DESCRIPTOR UINT64_MAX

struct foretell_advice {
    uint64_t sequence;
    uint32_t kind;
    uint32_t advice;       /* FORETELL_ADVICE_… */
    uint64_t device;       /* st_dev of the file; 0 if the advice is about memory */
    uint64_t inode;        /* st_ino */
    uint64_t offset_bytes; /* where in the file, or the address of the memory */
    uint64_t length_bytes; /* 0: up to the end of the file */
    uint64_t descriptor;   /* of the file; FORETELL_NO_DESCRIPTOR if the advice is about memory */
    uint64_t reserved;
};

/* Places for files that are executed again and again. */
#define FORETELL_EXECUTED_PLACES 16u

/*
 * The ring's first page. The manager writes interest and tail, the program head and the counters; these
 * lie on different cache lines.
 *
 * If head - tail < capacity, a producer takes a ticket by compare-and-swap on head, fills slot
 * ticket % capacity, and stores the slot's sequence (release). Else it counts dropped_records. The
 * consumer waits until the sequence of slot tail % capacity is tail + 1, copies the slot, and stores
 * tail (release).
 */
struct foretell_ring_header {
    /* line 0: written once, before HELLO is sent */
    uint64_t magic;
    uint32_t version;
    uint32_t capacity_records;
    uint32_t record_bytes;
    uint32_t header_bytes;
    uint8_t reserved0[40];
    /* line 1: written by the manager, read at every call */
    uint32_t interest;      /* FORETELL_INTEREST_… */
    uint32_t manager_ended; /* 1: the library is not put along with further programs */
    uint32_t manager_hears; /* 1: the manager has the ring, and will say in it when it ends */
    uint32_t skips_repeated; /* 1: most executions of a program that is executed again and again are to be without the
                                library */
    uint8_t reserved1[48];
    /* line 2: tickets reserved by producers */
    uint64_t head;
    uint8_t reserved2[56];
    /* line 3: records consumed by the manager */
    uint64_t tail;
    uint8_t reserved3[56];
    /* line 4: reads of regular files through hooked calls */
    uint64_t read_calls;
    uint64_t read_bytes;
    uint64_t read_stall_ns; /* whole durations of the calls above the stall threshold */
    uint64_t read_stalls;   /* how many such calls */
    uint8_t reserved4[32];
    /* line 5: opens, failed ones included */
    uint64_t open_calls;
    uint64_t open_stall_ns;
    uint64_t open_stalls;
    uint8_t reserved5[40];
    /* line 6: calls that ask about names: the stat family, access, readlink, chdir; opendir, and reads of folders */
    uint64_t name_calls;    /* only those made while there was interest in names are counted and timed */
    uint64_t name_stall_ns;
    uint64_t name_stalls;
    uint8_t reserved7[40];
    /* line 7: everything else */
    uint64_t other_read_bytes; /* through hooked calls from pipes, terminals, sockets, devices; and from
                                  descriptors whose kind was never looked up */
    uint64_t dropped_records;  /* the ring was full */
    uint64_t programs_left_alone; /* executed without the library */
    uint64_t programs_skipped;    /* those of them for the sake of skips_repeated */
    uint64_t programs_followed;   /* executed with the library */
    uint32_t silent; /* not 0: the process tells no more. The library has switched itself off (1 for ever), or threads are
                        executing programs without it (1 each, taken back where that fails) */
    uint8_t reserved6[20];
    /* lines 8 to 11: files that were executed while skips_repeated was set, each at the place that its hash gives. Only the
     * library reads them. */
    struct foretell_executed {
        uint64_t file; /* a hash of device and inode */
        uint64_t times;
    } executed[FORETELL_EXECUTED_PLACES];
};

/* Kinds of messages. */
#define FORETELL_MESSAGE_HELLO 1u
#define FORETELL_MESSAGE_HINT 2u
#define FORETELL_MESSAGE_CANCEL 3u
#define FORETELL_MESSAGE_REQUEST 4u

/* Most bytes of a message, and of a path in one. */
#define FORETELL_MESSAGE_MAX_BYTES 65536u
#define FORETELL_PATH_MAX_BYTES 4096u
#define FORETELL_COMM_BYTES 16u

/* The manager's stream that belongs to no connection: hints sent to it outlive their sender. */
#define FORETELL_STREAM_EXTERNAL UINT64_C(0)

/* Hint flags. */
#define FORETELL_HINT_WHOLE_FILE 1u
/* The parts may be read in any order. */
#define FORETELL_HINT_ANY_ORDER 2u
/* Equally spaced segments like the first one. The second one holds the stride: its offset is the distance
 * from one segment to the next in bytes, its length is the number of segments. */
#define FORETELL_HINT_STRIDED 4u

/* The head of every message. A message is one packet. */
struct foretell_message_header {
    uint32_t kind;
    uint32_t total_bytes; /* of the packet, this header included */
};

/* HELLO flag: sent at the start of a program, and not by a forked child. */
#define FORETELL_HELLO_PROGRAM 1u

/* One ring descriptor comes along (SCM_RIGHTS). argv0_bytes bytes of argv[0] follow. */
struct foretell_hello {
    struct foretell_message_header header;
    uint32_t version;
    uint32_t pid;  /* as the program sees it: may differ from the socket's credentials in a pid
                      namespace */
    uint32_t ppid;
    uint32_t argv0_bytes;
    char comm[FORETELL_COMM_BYTES]; /* NUL-padded */
    uint32_t flags;                 /* FORETELL_HELLO_… */
};

/* segment_count segments follow, then path_bytes bytes of an absolute path without a NUL. */
struct foretell_hint {
    struct foretell_message_header header;
    uint64_t stream; /* FORETELL_STREAM_EXTERNAL, or a number that the connection chose */
    uint32_t flags;  /* FORETELL_HINT_… */
    uint32_t repeat; /* how often the segments are read in a row; at least 1 */
    uint32_t path_bytes;
    uint32_t segment_count; /* 0 if and only if the whole file is meant */
};

/* A part of a file, in the order of reading. Also part of the public C API. */
#ifndef FORETELL_SEGMENT_DEFINED
#define FORETELL_SEGMENT_DEFINED
struct foretell_segment {
    uint64_t offset_bytes;
    uint64_t length_bytes; /* at least 1 */
};
#endif

/* The hints of this stream of this connection that are not read yet are void. */
struct foretell_cancel {
    struct foretell_message_header header;
    uint64_t stream;
};

/* What this stream of this connection discloses is fetched in requests of at most so many bytes, from now on. */
struct foretell_request {
    struct foretell_message_header header;
    uint64_t stream;
    uint64_t bytes;
};

#if defined(__STDC_VERSION__) && __STDC_VERSION__ >= 201112L
#define FORETELL_LINE(field, line)                                                                 \
    _Static_assert(offsetof(struct foretell_ring_header, field) == (line) * 64u,                   \
                   #field " opens a cache line")
_Static_assert(sizeof(struct foretell_record) == FORETELL_RECORD_BYTES, "record size");
_Static_assert(sizeof(struct foretell_touch) == FORETELL_RECORD_BYTES, "touch size");
_Static_assert(sizeof(struct foretell_path_part) == FORETELL_RECORD_BYTES, "path part size");
_Static_assert(sizeof(struct foretell_advice) == FORETELL_RECORD_BYTES, "advice size");
_Static_assert(sizeof(struct foretell_ring_header) == 12u * 64u, "header lines");
_Static_assert(sizeof(struct foretell_ring_header) <= FORETELL_RING_HEADER_BYTES, "header page");
_Static_assert((FORETELL_RING_CAPACITY_RECORDS & (FORETELL_RING_CAPACITY_RECORDS - 1u)) == 0u,
               "capacity is a power of two");
FORETELL_LINE(magic, 0u);
FORETELL_LINE(interest, 1u);
FORETELL_LINE(head, 2u);
FORETELL_LINE(tail, 3u);
FORETELL_LINE(read_calls, 4u);
FORETELL_LINE(open_calls, 5u);
FORETELL_LINE(name_calls, 6u);
FORETELL_LINE(other_read_bytes, 7u);
#undef FORETELL_LINE
_Static_assert(sizeof(struct foretell_message_header) == 8u, "message header size");
_Static_assert(sizeof(struct foretell_hello) == 44u, "hello size");
_Static_assert(sizeof(struct foretell_hint) == 32u, "hint size");
_Static_assert(sizeof(struct foretell_segment) == 16u, "segment size");
_Static_assert(sizeof(struct foretell_cancel) == 16u, "cancel size");
_Static_assert(sizeof(struct foretell_request) == 24u, "request size");
#endif

#endif
