/* Reads a file in several ways, prints what came of it, and ends with 3. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <locale.h>
#include <stdio.h>
#include <unistd.h>
#include <wchar.h>

int main(int argc, char **argv)
{
    char bytes[64];
    unsigned long sum = 0;
    if (argc < 2)
        return 2;
    setlocale(LC_ALL, "C.UTF-8"); /* a chroot has none */
    const char *path = argv[argc - 1];
    int fd = open(path, O_RDONLY);
    ssize_t got = read(fd, bytes, sizeof bytes);
    printf("read %zd\n", got);
    close(fd);
    FILE *stream = fopen(path, "r");
    if (stream == NULL)
        return 1;
    for (wint_t c; (c = fgetwc(stream)) != WEOF;)
        sum = sum * 31 + (unsigned long)c;
    rewind(stream);
    printf("sum %lu, fread %zu\n", sum & 0xffffff, fread(bytes, 1, sizeof bytes, stream));
    fclose(stream);
    fprintf(stderr, "euid %d\n", (int)geteuid());
    return 3;
}
