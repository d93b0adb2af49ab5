/*
 * Gives hints for its arguments, then reads these files and prints their total size.
 *
 *     cc hint_files.c -lforetell -o hint_files
 *     foretell run -- ./hint_files *.h
 */
#include <foretell.h>
#include <stdio.h>

int main(int argc, char **argv)
{
    static char block[65536];
    unsigned long long total_bytes = 0;
    int failed = 0;

    foretell_stream *stream = foretell_stream_open();
    for (int i = 1; i < argc; i++)
        foretell_stream_sequential(stream, argv[i]);

    for (int i = 1; i < argc; i++) {
        FILE *file = fopen(argv[i], "rb");
        if (file == NULL) {
            perror(argv[i]);
            failed = 1;
            continue;
        }
        size_t bytes;
        while ((bytes = fread(block, 1, sizeof block, file)) > 0)
            total_bytes += bytes;
        if (ferror(file)) {
            perror(argv[i]);
            failed = 1;
        }
        fclose(file);
    }
    foretell_stream_close(stream);
    printf("%llu bytes in %d files\n", total_bytes, argc - 1);
    return failed;
}
