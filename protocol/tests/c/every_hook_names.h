/* What every_hook.c tries of calls that name a path, and of reads of folders. */

/* What a call says of the root folder. */
static long kind(long result, const struct stat *of)
{
    return result == 0 ? (long)of->st_ino * 10 + S_ISDIR(of->st_mode) : result;
}

CLASS(of_stat)
{
    int (*call)(const char *, struct stat *) = f;
    struct stat found;
    switch (way) {
    case 0: return kind(call("/", &found), &found);
    case 1: return call(NOWHERE, &found);
    case 2: return call(BAD, &found);
    case 3: return call(NULL, &found);
    case 4: return call("/", BAD);
    case 5: return call("", &found);
    case 6: return kind(call(path, &found), &found) != -1;
    }
    return none();
}

CLASS(of_statat)
{
    int (*call)(int, const char *, struct stat *, int) = f;
    struct stat found;
    switch (way) {
    case 0: return kind(call(AT_FDCWD, "/", &found, 0), &found);
    case 1: return kind(call(folder, ".", &found, AT_SYMLINK_NOFOLLOW), &found);
    case 2: return call(folder, NOWHERE + 1, &found, 0);
    case 3: return call(folder, BAD, &found, 0);
    case 4: return call(folder, BAD, &found, ~0);
    case 5: return call(-1, "etc", &found, 0);
    case 6: return call(NO_FD, BAD, &found, 0);
    case 7: return kind(call(folder, "", &found, AT_EMPTY_PATH), &found);
    case 8: return call(file, "x", &found, 0);
    case 9: return call(folder, NULL, &found, AT_EMPTY_PATH);
    case 10: return call(folder, "", &found, 0);
    }
    return none();
}

CLASS(of_xstat)
{
    int (*call)(int, const char *, struct stat *) = f;
    struct stat found;
    switch (way) {
    case 0: return kind(call(1, "/", &found), &found);
    case 1: return call(1, NOWHERE, &found);
    case 2: return call(1, BAD, &found);
    case 3: return call(99, "/", &found);
    case 4: return call(99, BAD, &found);
    }
    return none();
}

CLASS(of_xstatat)
{
    int (*call)(int, int, const char *, struct stat *, int) = f;
    struct stat found;
    switch (way) {
    case 0: return kind(call(1, folder, ".", &found, 0), &found);
    case 1: return call(1, folder, BAD, &found, 0);
    case 2: return call(1, folder, BAD, &found, ~0);
    case 3: return call(99, folder, "etc", &found, 0);
    }
    return none();
}

CLASS(of_statx)
{
    int (*call)(int, const char *, int, unsigned, struct statx *) = f;
    struct statx found;
    switch (way) {
    case 0: return call(AT_FDCWD, "/", 0, STATX_INO, &found) != 0 ? -1 : (long)found.stx_ino;
    case 1: return call(folder, "etc", AT_SYMLINK_NOFOLLOW, STATX_TYPE, &found);
    case 2: return call(folder, BAD, 0, STATX_TYPE, &found);
    case 3: return call(folder, BAD, ~0, STATX_TYPE, &found);
    case 4: return call(folder, BAD, 0, ~0u, &found);
    case 5: return call(folder, NULL, AT_EMPTY_PATH, STATX_TYPE, &found);
    case 6: return call(-1, "etc", 0, STATX_TYPE, &found);
    case 7: return call(folder, "", AT_EMPTY_PATH, STATX_TYPE, &found);
    case 8: return call(folder, "etc", 0, STATX_TYPE, BAD);
    }
    return none();
}

CLASS(of_access)
{
    int (*call)(const char *, int) = f;
    switch (way) {
    case 0: return call("/", R_OK);
    case 1: return call(NOWHERE, F_OK);
    case 2: return call(BAD, F_OK);
    case 3: return call(BAD, ~0);
    case 4: return call("/", ~0);
    }
    return none();
}

CLASS(of_faccessat)
{
    int (*call)(int, const char *, int, int) = f;
    switch (way) {
    case 0: return call(folder, "etc", R_OK, 0);
    case 1: return call(folder, "etc", R_OK, AT_EACCESS);
    case 2: return call(folder, BAD, R_OK, 0);
    case 3: return call(folder, BAD, R_OK, ~0);
    case 4: return call(folder, BAD, ~0, 0);
    case 5: return call(-1, "etc", R_OK, 0);
    case 6: return call(folder, "none", R_OK, AT_SYMLINK_NOFOLLOW);
    }
    return none();
}


CLASS(of_readlink)
{
    ssize_t (*call)(const char *, char *, size_t) = f;
    switch (way) {
    case 0: return call("/proc/mounts", bytes, sizeof bytes);
    case 1: return call("/", bytes, sizeof bytes);
    case 2: return call(BAD, bytes, sizeof bytes);
    case 3: return call(BAD, bytes, 0);
    case 4: return call("/proc/mounts", bytes, 0);
    case 5: return call("/proc/mounts", BAD, 10);
    case 6: return call(NOWHERE, bytes, 10);
    case 7: return call(BAD, bytes, SIZE_MAX);
    case 8: return call("/proc/mounts", bytes, 2);
    }
    return none();
}

CLASS(of_readlink_chk)
{
    ssize_t (*call)(const char *, char *, size_t, size_t) = f;
    switch (way) {
    case 0: return call("/proc/mounts", bytes, 10, sizeof bytes);
    case 1: return call(BAD, bytes, 10, 10);
    case 2: return call("/proc/mounts", bytes, 10, 9);
    }
    return none();
}

CLASS(of_readlinkat)
{
    ssize_t (*call)(int, const char *, char *, size_t) = f;
    switch (way) {
    case 0: return call(folder, "proc/mounts", bytes, sizeof bytes);
    case 1: return call(folder, "etc", bytes, sizeof bytes);
    case 2: return call(folder, BAD, bytes, sizeof bytes);
    case 3: return call(folder, "", bytes, sizeof bytes);
    case 4: return call(-1, "etc", bytes, sizeof bytes);
    case 5: return call(-1, BAD, bytes, 0);
    }
    return none();
}

CLASS(of_readlinkat_chk)
{
    ssize_t (*call)(int, const char *, char *, size_t, size_t) = f;
    switch (way) {
    case 0: return call(folder, "proc/mounts", bytes, 10, sizeof bytes);
    case 1: return call(folder, BAD, bytes, 10, 10);
    case 2: return call(folder, "proc/mounts", bytes, 10, 9);
    }
    return none();
}

CLASS(of_realpath)
{
    char *(*call)(const char *, char *, size_t) = f; /* __realpath_chk has a size */
    static char found[PATH_MAX];
    switch (way) {
    case 0: return is(call("/proc/mounts/../mounts", found, sizeof found));
    case 1: return is(call(NOWHERE, found, sizeof found));
    case 2: return is(call(NULL, found, sizeof found));
    case 3: return is(call(BAD, found, sizeof found));
    case 4: return is(call("", found, sizeof found));
    }
    return none();
}

CLASS(of_chdir)
{
    int (*call)(const char *) = f;
    switch (way) {
    case 0: return call("/proc") * 10 + access("self", F_OK);
    case 1: return call(NOWHERE);
    case 2: return call(BAD);
    case 3: return call(path);
    }
    return none();
}

CLASS(of_fchdir)
{
    int (*call)(int) = f;
    switch (way) {
    case 0: return call(folder) * 10 + access("proc", F_OK);
    case 1: return call(-1);
    case 2: return call(file);
    }
    return none();
}

CLASS(of_opendir)
{
    DIR *(*call)(const char *) = f;
    switch (way) {
    case 0: return is(call("/"));
    case 1: return is(call(NOWHERE));
    case 2: return is(call(path));
    case 3: return is(call(BAD));
    case 4: return is(call(""));
    }
    return none();
}

CLASS(of_fdopendir)
{
    DIR *(*call)(int) = f;
    switch (way) {
    case 0: return is(call(folder));
    case 1: return is(call(-1));
    case 2: return is(call(file));
    case 3: return is(call(out));
    case 4: return is(call(NO_FD));
    }
    return none();
}

CLASS(of_closedir)
{
    int (*call)(DIR *) = f;
    switch (way) {
    case 0: return call(listed);
    case 1: return call(NULL);
    case 2: return call(BAD);
    }
    return none();
}

CLASS(of_readdir)
{
    struct dirent *(*call)(DIR *) = f;
    switch (way) {
    case 0: return is(call(listed)) + is(call(listed));
    case 1: return call(listed) != NULL ? call(listed)->d_name[0] : 0;
    case 2: return is(call(BAD));
    }
    return none();
}

CLASS(of_readdir_r)
{
    int (*call)(DIR *, struct dirent *, struct dirent **) = f;
    static struct dirent to;
    static struct dirent *place;
    switch (way) {
    case 0: return call(listed, &to, &place) == 0 ? is(place) : -1;
    case 1: return call(BAD, &to, &place);
    }
    return none();
}

CLASS(of_getdents64)
{
    ssize_t (*call)(int, void *, size_t) = f;
    int some = dirfd(listed);
    switch (way) {
    case 0: return call(some, bytes + 100, 0);
    case 1: return call(some, BAD, 200);
    case 2: return call(-1, bytes, 200);
    case 3: return call(file, bytes, 200);
    case 4: return call(folder, bytes, sizeof bytes) > 0 ? (memset(bytes, 0, sizeof bytes), 1) : 0;
    }
    return none();
}

static int one_name(const struct dirent *entry)
{
    return strcmp(entry->d_name, "etc") == 0;
}

CLASS(of_scandir)
{
    int (*call)(const char *, struct dirent ***, int (*)(const struct dirent *), void *) = f;
    struct dirent **list;
    switch (way) {
    case 0: return call("/", &list, one_name, NULL);
    case 1: return call(NOWHERE, &list, NULL, NULL);
    case 2: return call(BAD, &list, NULL, NULL);
    case 3: return call(path, &list, NULL, NULL);
    }
    return none();
}

CLASS(of_scandirat)
{
    int (*call)(int, const char *, struct dirent ***, int (*)(const struct dirent *), void *) = f;
    struct dirent **list;
    switch (way) {
    case 0: return call(folder, ".", &list, one_name, NULL);
    case 1: return call(-1, ".", &list, NULL, NULL);
    case 2: return call(folder, BAD, &list, NULL, NULL);
    }
    return none();
}

/* Ends the walk at the first file. */
static int file_found(const char *name, const struct stat *found, int kind, struct FTW *place)
{
    (void)name, (void)found, (void)place;
    return kind == FTW_F ? 42 : 0;
}

/* ftw's callback has fewer parameters, and ftw has no flags. */
CLASS(of_ftw)
{
    int (*call)(const char *, void *, int, int) = f;
    switch (way) {
    case 0: return call("/proc/self/fdinfo", file_found, 4, FTW_PHYS);
    case 1: return call(NOWHERE, file_found, 4, 0);
    case 2: return call(BAD, file_found, 4, 0);
    case 3: return call("", file_found, 4, 0);
    case 4: return call(path, file_found, 0, 0);
    }
    return none();
}

CLASS(of_fts_open)
{
    FTS *(*call)(char *const *, int, void *) = f;
    switch (way) {
    case 0: return is(call((char *[]){"/proc/self", NULL}, FTS_PHYSICAL, NULL));
    case 1: return is(call(BAD, ~0, NULL));
    case 2: return is(call(BAD, FTS_PHYSICAL, NULL));
    case 3: return is(call((char *[]){NOWHERE, NULL}, FTS_PHYSICAL, NULL));
    case 4: return is(call((char *[]){BAD, NULL}, FTS_PHYSICAL, NULL));
    case 5: return is(call((char *[]){"", NULL}, FTS_LOGICAL, NULL));
    }
    return none();
}

CLASS(of_fts_read)
{
    FTSENT *(*call)(FTS *) = f;
    switch (way) {
    case 0: return call(walked)->fts_info;
    case 1: return call(walked)->fts_info * 100 + call(walked)->fts_info;
    case 2: return call(walked) != NULL && fts_set(walked, walked->fts_cur, FTS_SKIP) == 0 ? call(walked)->fts_info : 0;
    }
    return none();
}

CLASS(of_fts_children)
{
    FTSENT *(*call)(FTS *, int) = f;
    switch (way) {
    case 0: return is(call(walked, 0));
    case 1: return is(call(walked, 12345));
    case 2: return is(fts_read(walked)) * 10 + is(call(walked, FTS_NAMEONLY));
    }
    return none();
}
