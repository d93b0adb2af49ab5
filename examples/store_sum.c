/*
 * Reads a file of a store, after a hint, and prints the sum of its bytes.
 *
 *     cc -I PREFIX/include store_sum.c -L PREFIX/lib -Wl,-rpath,PREFIX/lib -lforetell_store -o store_sum
 *     ./store_sum s3://bucket/prefix name
 */
#include <foretell_store.h>
#include <stdio.h>

int main(int argc, char **argv)
{
    static unsigned char block[65536];
    unsigned long long sum = 0;
    ssize_t bytes = -1;

    if (argc != 3)
        return 2;
    foretell_store *store = foretell_store_open(argv[1], NULL);
    foretell_store_file *file = store != NULL ? foretell_store_file_open(store, argv[2]) : NULL;
    if (file != NULL) {
        foretell_store_hint(file, NULL, 0, 0);
        for (uint64_t at = 0; (bytes = foretell_store_pread(file, block, sizeof block, at)) > 0; at += (uint64_t)bytes)
            for (ssize_t i = 0; i < bytes; i++)
                sum += block[i];
    }
    if (bytes < 0)
        fprintf(stderr, "%s\n", foretell_store_error());
    else
        printf("%llu\n", sum);
    foretell_store_file_close(file);
    foretell_store_close(store);
    return bytes < 0;
}
