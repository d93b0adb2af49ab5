/* Uses every function of the C API; prints the results. tests/messages.rs checks what arrives. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <foretell.h>

int main(void)
{
    static struct foretell_segment many[9000];
    struct foretell_segment parts[2] = {{4096, 100}, {0, 1}};
    struct foretell_segment empty = {0, 0};
    for (size_t i = 0; i < 9000; i++)
        many[i] = (struct foretell_segment){i * 10, 5};
    errno = 77;
    int whole = foretell_hint_sequential("whole");
    int some = foretell_hint_segments("/parts", parts, 2);
    foretell_stream *stream = foretell_stream_open();
    int streamed = foretell_stream_sequential(stream, "streamed");
    foretell_stream_segments(stream, "/many", many, 9000);
    struct foretell_segment first = {8, 4};
    struct foretell_reading strided = {.segments = &first, .segment_count = 1, .stride_bytes = 100,
                                       .stride_count = 7, .repeat = 3, .any_order = true};
    struct foretell_reading again = {.segments = &first, .segment_count = 1, .repeat = 2};
    foretell_stream_hint(stream, "/formed", &strided);
    foretell_stream_hint(stream, "/formed", &(struct foretell_reading){0});
    foretell_stream_hint(stream, "/formed", &again);
    struct foretell_reading wrong = {.stride_bytes = 1, .stride_count = 2};
    if (stream != NULL && foretell_stream_hint(stream, "/formed", &wrong) != FORETELL_INVALID)
        return 1;
    if (foretell_stream_request(stream, 16384) != (stream != NULL ? FORETELL_SENT : FORETELL_NO_MANAGER))
        return 1;
    int cancelled = foretell_stream_cancel(stream);
    printf("%d %d %d %d %d\n", whole, some, stream != NULL, streamed, cancelled);
    fflush(stdout);
    pid_t child = fork();
    if (child == 0)
        _exit(foretell_stream_sequential(stream, "/forked") == FORETELL_NO_MANAGER ? 0 : 1);
    int status = 1;
    waitpid(child, &status, 0);
    foretell_stream_close(stream);
    foretell_stream_close(NULL);
    /* A stream whose descriptor the program has closed, and given to something else. */
    stream = foretell_stream_open();
    closefrom(3);
    FILE *other = tmpfile();
    if (foretell_stream_sequential(stream, "/closed") != FORETELL_NO_MANAGER)
        status = 1;
    foretell_stream_close(stream);
    if (other == NULL || fputs("x", other) < 0 || fclose(other) != 0)
        status = 1;
    printf("%d %d %d %d\n", foretell_hint_sequential(""), foretell_hint_sequential(NULL),
           foretell_hint_segments("/a", parts, 0), foretell_hint_segments("/a", &empty, 1));
    return status != 0 || errno != 77;
}
