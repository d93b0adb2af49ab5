/* What every_hook.c tries of calls that take or give a descriptor. */
CLASS(of_read)
{
    ssize_t (*call)(int, void *, size_t) = f;
    switch (way) {
    case 0: return call(file, bytes, 9);
    case 1: return call(file, bytes, 40) + call(file, bytes, 40);
    case 2: return call(file, NULL, 0);
    case 3: return call(file, BAD, 5);
    case 4: return call(-1, bytes, 5);
    case 5: return call(NO_FD, bytes, 5);
    case 6: return call(folder, bytes, 5);
    case 7: return call(ends[0], bytes, 5);
    case 8: return call(file, BAD, SIZE_MAX);
    case 9: return call(copy, bytes, 9);
    case 10: return call(INT_MAX, NULL, 0);
    }
    return none();
}

CLASS(of_read_chk)
{
    ssize_t (*call)(int, void *, size_t, size_t) = f;
    switch (way) {
    case 0: return call(file, bytes, 9, sizeof bytes);
    case 1: return call(file, BAD, 5, 5);
    case 2: return call(-1, NULL, 0, 0);
    case 3: return call(file, bytes, 9, 8);
    }
    return none();
}

CLASS(of_pread)
{
    ssize_t (*call)(int, void *, size_t, off64_t) = f;
    switch (way) {
    case 0: return call(file, bytes, 9, 100);
    case 1: return call(file, NULL, 0, 0);
    case 2: return call(file, BAD, 5, 0);
    case 3: return call(-1, bytes, 5, 0);
    case 4: return call(file, bytes, 5, -1);
    case 5: return call(ends[0], bytes, 5, 0);
    case 6: return call(file, bytes, 5, INT64_MAX);
    }
    return none();
}

CLASS(of_pread_chk)
{
    ssize_t (*call)(int, void *, size_t, off64_t, size_t) = f;
    switch (way) {
    case 0: return call(file, bytes, 9, 100, sizeof bytes);
    case 1: return call(file, BAD, 5, 0, 5);
    case 2: return call(file, bytes, 9, 0, 8);
    }
    return none();
}

static struct iovec parts[2] = {{bytes, 7}, {bytes + 7, 9}};
static struct iovec bad_parts[2] = {{bytes, 7}, {BAD, 9}};

CLASS(of_readv)
{
    ssize_t (*call)(int, const struct iovec *, int) = f;
    switch (way) {
    case 0: return call(file, parts, 2);
    case 1: return call(file, NULL, 0);
    case 2: return call(file, BAD, 1);
    case 3: return call(file, bad_parts, 2);
    case 4: return call(file, parts, -1);
    case 5: return call(-1, parts, 2);
    }
    return none();
}

CLASS(of_preadv)
{
    ssize_t (*call)(int, const struct iovec *, int, off64_t) = f;
    switch (way) {
    case 0: return call(file, parts, 2, 100);
    case 1: return call(file, NULL, 0, 0);
    case 2: return call(file, BAD, 1, 0);
    case 3: return call(file, bad_parts, 2, 0);
    case 4: return call(file, parts, 2, -1);
    case 5: return call(-1, parts, 2, 0);
    }
    return none();
}

CLASS(of_preadv2)
{
    ssize_t (*call)(int, const struct iovec *, int, off64_t, int) = f;
    switch (way) {
    case 0: return call(file, parts, 2, 100, 0);
    case 1: return call(file, parts, 2, -1, 0);
    case 2: return call(file, BAD, 1, 0, 0);
    case 3: return call(file, parts, 2, 0, -1);
    case 4: return call(file, NULL, 0, -1, 0);
    }
    return none();
}

CLASS(of_sendfile)
{
    ssize_t (*call)(int, int, off64_t *, size_t) = f;
    off64_t at = 100;
    switch (way) {
    case 0: return call(ends[1], file, NULL, 9);
    case 1: return call(ends[1], file, &at, 9) * 1000 + at;
    case 2: return call(ends[1], file, BAD, 0);
    case 3: return call(ends[1], file, BAD, 9);
    case 4: return call(-1, file, &at, 9);
    case 5: return call(ends[1], -1, BAD, 9);
    case 6: at = INT64_MAX; return call(ends[1], file, &at, 9);
    }
    return none();
}

CLASS(of_copy)
{
    ssize_t (*call)(int, off64_t *, int, off64_t *, size_t, unsigned) = f;
    off64_t at = 100;
    switch (way) {
    case 0: return call(file, NULL, ends[1], NULL, 9, 0);
    case 1: return call(file, &at, ends[1], NULL, 9, 0) * 1000 + at;
    case 2: return call(file, BAD, ends[1], NULL, 0, 0);
    case 3: return call(file, BAD, ends[1], NULL, 9, 0);
    case 4: return call(file, NULL, ends[1], BAD, 0, 0);
    case 5: return call(file, BAD, out, BAD, 0, 0);
    case 6: return call(-1, BAD, -1, BAD, 9, 0);
    case 7: return call(file, &at, ends[1], NULL, 9, ~0u);
    }
    return none();
}

CLASS(of_open)
{
    int (*call)(const char *, int, ...) = f;
    switch (way) {
    case 0: return call(path, O_RDONLY);
    case 1: return call(path, O_RDWR);
    case 2: return call(BAD, O_RDONLY);
    case 3: return call(NULL, O_RDONLY);
    case 4: return call(NOWHERE, O_RDONLY);
    case 5: return call("/tmp", O_TMPFILE | O_RDWR, 0600);
    case 6: return call("", O_WRONLY | O_CREAT, 0600);
    case 7: return call(path, ~0);
    case 8: return call(path, O_PATH);
    }
    return none();
}

CLASS(of_open_2)
{
    int (*call)(const char *, int) = f;
    switch (way) {
    case 0: return call(path, O_RDONLY);
    case 1: return call(BAD, O_RDONLY);
    case 2: return call(NOWHERE, O_RDONLY);
    case 3: return call(NOWHERE, O_CREAT);
    }
    return none();
}

CLASS(of_openat)
{
    int (*call)(int, const char *, int, ...) = f;
    switch (way) {
    case 0: return call(AT_FDCWD, path, O_RDONLY);
    case 1: return call(folder, "etc/passwd", O_RDONLY);
    case 2: return call(folder, BAD, O_RDONLY);
    case 3: return call(-1, "relative", O_RDONLY);
    case 4: return call(AT_FDCWD, NULL, O_RDONLY);
    }
    return none();
}

CLASS(of_openat_2)
{
    int (*call)(int, const char *, int) = f;
    switch (way) {
    case 0: return call(folder, "etc/passwd", O_RDONLY);
    case 1: return call(folder, BAD, O_RDONLY);
    case 2: return call(folder, NOWHERE, O_CREAT);
    }
    return none();
}

CLASS(of_openat2)
{
    int (*call)(int, const char *, struct open_how *, size_t) = f;
    struct open_how how = {.flags = O_RDONLY};
    switch (way) {
    case 0: return call(folder, "etc/passwd", &how, sizeof how);
    case 1: return call(folder, "etc/passwd", BAD, sizeof how);
    case 2: return call(folder, "etc/passwd", NULL, 0);
    case 3: return call(folder, BAD, &how, sizeof how);
    }
    return none();
}

CLASS(of_creat)
{
    int (*call)(const char *, mode_t) = f;
    switch (way) {
    case 0: return call("/dev/null", 0600);
    case 1: return call(BAD, 0600);
    case 2: return call(NOWHERE, 0600);
    }
    return none();
}

CLASS(of_open_by_handle_at)
{
    int (*call)(int, struct file_handle *, int) = f;
    switch (way) {
    case 0: return call(-1, BAD, O_RDONLY);
    case 1: return call(folder, BAD, O_RDONLY);
    case 2: return call(folder, NULL, O_RDONLY);
    }
    return none();
}

/* mkstemp and its kin, told apart by how many arguments are looked at. */
CLASS(of_mkstemp)
{
    int (*call)(char *, int, int) = f;
    char wrong[] = "/tmp/foretell";
    char nowhere[] = "/nonexistent/XXXXXX";
    long result;
    switch (way) {
    case 0: result = call(temporary, 0, 0); unlink(temporary); return result;
    case 1: return call(wrong, 0, 0);
    case 2: return call(nowhere, 0, 0);
    case 3: return call(BAD, 0, 0);
    case 4: return call(NULL, 0, 0);
    }
    return none();
}

CLASS(of_tmpfile)
{
    FILE *(*call)(void) = f;
    return way == 0 ? is(call()) : none();
}

CLASS(of_lseek)
{
    off64_t (*call)(int, off64_t, int) = f;
    switch (way) {
    case 0: return call(file, 10, SEEK_SET) * 1000 + read(file, bytes, 5);
    case 1: return call(-1, 0, SEEK_SET);
    case 2: return call(file, -1, SEEK_SET);
    case 3: return call(file, 0, 99);
    case 4: return call(ends[0], 0, SEEK_CUR);
    }
    return none();
}

CLASS(of_close)
{
    int (*call)(int) = f;
    switch (way) {
    case 0: return call(file) * 10 + (int)read(file, bytes, 1);
    case 1: return call(-1);
    case 2: return call(NO_FD);
    case 3: return call(copy);
    case 4: return call(ends[0]);
    }
    return none();
}

CLASS(of_close_range)
{
    int (*call)(unsigned, unsigned, int) = f;
    switch (way) {
    case 0: return call((unsigned)file, (unsigned)copy, 0) * 10 + (int)read(file, bytes, 1);
    case 1: return call(9, 5, 0);
    case 2: return call(0, 0, ~0);
    }
    return none();
}

CLASS(of_closefrom)
{
    void (*call)(int) = f;
    switch (way) {
    case 0: call(file); return read(file, bytes, 1);
    case 1: call(-5); return read(file, bytes, 1);
    }
    return none();
}

CLASS(of_dup)
{
    int (*call)(int) = f;
    switch (way) {
    case 0: return call(file) * 1000 + (int)read(file, bytes, 5);
    case 1: return call(-1);
    case 2: return call(NO_FD);
    }
    return none();
}

CLASS(of_dup2)
{
    int (*call)(int, int, int) = f; /* dup3 has flags */
    switch (way) {
    case 0: return call(file, 77, 0) * 1000 + (int)read(77, bytes, 5);
    case 1: return call(-1, 77, 0);
    case 2: return call(file, -1, 0);
    case 3: return call(file, file, 0);
    case 4: return call(ends[0], file, 0) * 1000 + (int)read(file, bytes, 5);
    case 5: return call(NO_FD, NO_FD, 0);
    }
    return none();
}

CLASS(of_fcntl)
{
    int (*call)(int, int, ...) = f;
    switch (way) {
    case 0: return call(file, F_GETFL);
    case 1: return call(file, F_DUPFD, 100) * 1000 + (int)read(100, bytes, 5);
    case 2: return call(-1, F_DUPFD, 0);
    case 3: return call(file, F_GETLK, BAD);
    case 4: return call(file, 12345);
    }
    return none();
}

CLASS(of_fadvise)
{
    int (*call)(int, off64_t, off64_t, int) = f;
    switch (way) {
    case 0: return call(file, 0, 0, POSIX_FADV_WILLNEED);
    case 1: return call(file, -1, 10, POSIX_FADV_SEQUENTIAL);
    case 2: return call(file, 0, -1, POSIX_FADV_RANDOM);
    case 3: return call(file, 0, 10, 99);
    case 4: return call(ends[0], 0, 10, POSIX_FADV_WILLNEED);
    case 5: return call(-1, 0, 10, POSIX_FADV_WILLNEED);
    case 6: return call(folder, 0, 10, POSIX_FADV_NOREUSE);
    case 7: return call(NO_FD, 0, 10, POSIX_FADV_NORMAL);
    case 8: return call(copy, 5, INT64_MAX, POSIX_FADV_WILLNEED);
    }
    return none();
}

CLASS(of_readahead)
{
    ssize_t (*call)(int, off64_t, size_t) = f;
    switch (way) {
    case 0: return call(file, 0, 4096);
    case 1: return call(file, -1, 10);
    case 2: return call(file, 0, SIZE_MAX);
    case 3: return call(ends[0], 0, 10);
    case 4: return call(-1, 0, 10);
    case 5: return call(folder, 0, 10);
    case 6: return call(file, 0, 0);
    }
    return none();
}

static char advised[8192] __attribute__((aligned(4096)));

CLASS(of_madvise)
{
    int (*call)(void *, size_t, int) = f;
    switch (way) {
    case 0: return call(advised, sizeof advised, MADV_WILLNEED);
    case 1: return call(advised, sizeof advised, MADV_SEQUENTIAL);
    case 2: return call(BAD, 4096, MADV_RANDOM);
    case 3: return call(NULL, 4096, MADV_WILLNEED);
    case 4: return call(advised, 4096, 22 /* MADV_POPULATE_READ */);
    case 5: return call(advised, SIZE_MAX, MADV_WILLNEED);
    case 6: return call(advised, 4096, 12345);
    case 7: return call(advised, 4096, MADV_NORMAL);
    }
    return none();
}

CLASS(of_mmap)
{
    void *(*call)(void *, size_t, int, int, int, off64_t) = f;
    switch (way) {
    case 0: return call(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_POPULATE, file, 0) != MAP_FAILED;
    case 1: return call(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_POPULATE, -1, 0) != MAP_FAILED;
    case 2: return call(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_POPULATE, ends[0], 0) != MAP_FAILED;
    case 3: return call(NULL, 0, PROT_READ, MAP_PRIVATE | MAP_POPULATE, file, 0) != MAP_FAILED;
    case 4: return call(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_POPULATE, file, 1) != MAP_FAILED;
    case 5: return call(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) != MAP_FAILED;
    case 6: return call(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, 99, 0) != MAP_FAILED;
    case 7: return call(NULL, 4096, PROT_READ, ~0, file, 0) != MAP_FAILED;
    }
    return none();
}

CLASS(of_aio_return)
{
    ssize_t (*call)(struct aiocb *) = f;
    /* As if a read had returned nothing: an actual one has a thread. */
    static struct aiocb control;
    control.aio_fildes = file;
    switch (way) {
    case 0: return call(&control);
    case 1: control.aio_fildes = -1; return call(&control);
    case 2: control.aio_fildes = ends[0]; return call(&control);
    case 3: return call(BAD);
    }
    return none();
}
