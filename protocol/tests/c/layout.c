/* Prints every size, offset and constant of the protocol, one "name value" a line. */
#include "foretell_protocol.h"
#include <stdio.h>

#define NUMBER(name) printf("%s %llu\n", #name, (unsigned long long)FORETELL_##name)
#define SIZE(type) printf("sizeof %s %zu\n", #type, sizeof(struct foretell_##type))
#define FIELD(type, field) printf("%s.%s %zu\n", #type, #field, offsetof(struct foretell_##type, field))

int main(void)
{
    NUMBER(PROTOCOL_VERSION);
    NUMBER(RING_MAGIC);
    NUMBER(RING_CAPACITY_RECORDS);
    NUMBER(RING_HEADER_BYTES);
    NUMBER(RECORD_BYTES);
    NUMBER(RING_BYTES);
    NUMBER(STALL_THRESHOLD_NS);
    NUMBER(COPY_BYTES_PER_NS);
    NUMBER(RECORD_READ);
    NUMBER(RECORD_OPEN);
    NUMBER(FLAG_STDIO);
    NUMBER(FLAG_POSITIONED);
    NUMBER(FLAG_SHARED);
    NUMBER(FLAG_FAILED);
    NUMBER(MESSAGE_HELLO);
    NUMBER(MESSAGE_HINT);
    NUMBER(MESSAGE_CANCEL);
    NUMBER(MESSAGE_MAX_BYTES);
    NUMBER(PATH_MAX_BYTES);
    NUMBER(COMM_BYTES);
    NUMBER(STREAM_EXTERNAL);
    NUMBER(HINT_WHOLE_FILE);
    NUMBER(HINT_ANY_ORDER);
    NUMBER(HINT_STRIDED);
    NUMBER(HELLO_PROGRAM);
    printf("SOCKET_VARIABLE %s\n", FORETELL_SOCKET_VARIABLE);
    printf("PRELOAD_VARIABLE %s\n", FORETELL_PRELOAD_VARIABLE);
    printf("SOCKET_PREFIX %s\n", FORETELL_SOCKET_PREFIX);
    SIZE(record);
    FIELD(record, sequence);
    FIELD(record, kind);
    FIELD(record, flags);
    FIELD(record, device);
    FIELD(record, inode);
    FIELD(record, offset_bytes);
    FIELD(record, length_bytes);
    FIELD(record, end_ns);
    FIELD(record, duration_ns);
    SIZE(ring_header);
    FIELD(ring_header, magic);
    FIELD(ring_header, version);
    FIELD(ring_header, capacity_records);
    FIELD(ring_header, record_bytes);
    FIELD(ring_header, header_bytes);
    FIELD(ring_header, interest);
    FIELD(ring_header, manager_ended);
    FIELD(ring_header, head);
    FIELD(ring_header, tail);
    FIELD(ring_header, read_calls);
    FIELD(ring_header, read_bytes);
    FIELD(ring_header, read_stall_ns);
    FIELD(ring_header, read_stalls);
    FIELD(ring_header, open_calls);
    FIELD(ring_header, open_stall_ns);
    FIELD(ring_header, open_stalls);
    FIELD(ring_header, other_read_bytes);
    FIELD(ring_header, dropped_records);
    FIELD(ring_header, programs_left_alone);
    SIZE(message_header);
    FIELD(message_header, kind);
    FIELD(message_header, total_bytes);
    SIZE(hello);
    FIELD(hello, header);
    FIELD(hello, version);
    FIELD(hello, pid);
    FIELD(hello, ppid);
    FIELD(hello, argv0_bytes);
    FIELD(hello, comm);
    FIELD(hello, flags);
    SIZE(hint);
    FIELD(hint, header);
    FIELD(hint, stream);
    FIELD(hint, flags);
    FIELD(hint, repeat);
    FIELD(hint, path_bytes);
    FIELD(hint, segment_count);
    SIZE(segment);
    FIELD(segment, offset_bytes);
    FIELD(segment, length_bytes);
    SIZE(cancel);
    FIELD(cancel, header);
    FIELD(cancel, stream);
    return 0;
}
