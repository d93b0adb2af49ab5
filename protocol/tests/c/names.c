/*
 * Names paths in the way named by the first argument, below the folder named by the second one, and prints
 * what the calls returned, so that runs with and without the interposing library can be compared. The touches
 * are asserted by tests/preload_names.rs.
 */
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <fts.h>
#include <ftw.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static const char *root;
static struct stat found;
static char text[4096];

static void say(const char *what, long result)
{
    printf("%s %ld errno %d\n", what, result, result < 0 ? errno : 0);
    fflush(stdout);
}

/* The root begins as the working folder: file, link (to file), folder/inner, folder/deep/bottom. */
static void do_stat(void)
{
    struct statx more;
    snprintf(text, sizeof text, "%s/file", root);
    say("stat", stat(text, &found));
    say("lstat", lstat("link", &found));
    say("fstatat", fstatat(AT_FDCWD, "folder/inner", &found, 0));
    say("statx", statx(AT_FDCWD, "file", 0, STATX_TYPE, &more));
    say("access", access("file", R_OK));
    say("faccessat", faccessat(AT_FDCWD, "file", R_OK, AT_EACCESS));
    say("euidaccess", euidaccess("file", R_OK));
    say("missing", stat("missing", &found));
    say("no folder", stat("file/below", &found));
    say("not executable", access("file", X_OK));
}

static void do_link(void)
{
    say("readlink", readlink("link", text, sizeof text));
    say("readlinkat", readlinkat(AT_FDCWD, "link", text, sizeof text));
    say("no link", readlink("file", text, sizeof text));
    say("missing", readlink("missing", text, sizeof text));
    say("no room", readlink("link", text, 0));
    say("realpath", realpath("link", text) != NULL ? 0 : -1);
}

static void do_open(void)
{
    int fd = open("file", O_RDONLY);
    say("read", read(fd, text, 3));
    say("close", close(fd));
    say("written", close(open("new", O_WRONLY | O_CREAT | O_TRUNC, 0600)));
    say("made", close(open("new2", O_RDWR | O_CREAT | O_EXCL, 0600)));
    say("changed", close(open("file", O_RDWR)));
    say("missing", open("missing", O_RDONLY));
    say("looked up", close(open("folder/inner", O_PATH)));
    say("stream", fclose(fopen("folder/inner", "r")));
    say("no stream", fopen("missing", "r") == NULL);
    say("written stream", fclose(fopen("new3", "w")));
}

/* Bases: the working folder, numbers, duplicates, descriptors. */
static void do_bases(void)
{
    int folder = open("folder", O_RDONLY | O_DIRECTORY);
    say("below", fstatat(folder, "inner", &found, 0));
    int deep = openat(folder, "deep", O_RDONLY | O_DIRECTORY);
    say("bottom", fstatat(deep, "bottom", &found, 0));
    say("dup", fstatat(dup(folder), "inner", &found, 0));
    say("dup2", fstatat(dup2(deep, 77), "bottom", &found, 0));
    say("dupfd", fstatat(fcntl(folder, F_DUPFD, 300), "inner", &found, 0));
    close(deep);
    say("still", fstatat(77, "bottom", &found, 0));
    int again = open("folder", O_RDONLY); /* at the closed number, and not known to be a folder */
    say("again", fstatat(again, "inner", &found, 0));
    DIR *list = fdopendir(again);
    say("known", fstatat(again, "inner", &found, 0));
    closedir(list);
    say("closed", fstatat(again, "inner", &found, 0));
    int raw = (int)syscall(SYS_openat, AT_FDCWD, "folder", O_RDONLY | O_DIRECTORY, 0);
    say("raw", fstatat(raw, "inner", &found, 0));
    say("absolute", fstatat(raw, root, &found, 0));
    int replaced = dup2(STDIN_FILENO, folder);
    say("replaced", fstatat(replaced, "inner", &found, 0));
}

static void do_list(void)
{
    int entries = 0;
    DIR *list = opendir("folder");
    while (readdir(list) != NULL)
        entries++;
    say("entries", entries);
    say("below", fstatat(dirfd(list), "inner", &found, 0));
    say("close", closedir(list));
    say("missing", opendir("missing") == NULL);
    say("file", opendir("file") == NULL);
    struct dirent **names;
    say("scandir", scandir("folder", &names, NULL, alphasort));
    say("scandirat", scandirat(AT_FDCWD, "folder/deep", &names, NULL, alphasort));
}

static int one(const char *path, const struct stat *of, int kind, struct FTW *place)
{
    (void)of, (void)place;
    printf("visited %s %d\n", strrchr(path, '/'), kind);
    return 0;
}

static void do_walk(void)
{
    say("nftw", nftw("./folder/deep", one, 4, FTW_PHYS));
    char *paths[] = {"./folder/deep", NULL};
    FTS *walk = fts_open(paths, FTS_PHYSICAL | FTS_NOCHDIR, NULL);
    for (FTSENT *entry; (entry = fts_read(walk)) != NULL;)
        printf("read %s %d\n", entry->fts_name, entry->fts_info);
    say("close", fts_close(walk));
}

static void do_move(void)
{
    int start = open(".", O_RDONLY | O_DIRECTORY);
    say("chdir", chdir("folder"));
    say("inner", stat("inner", &found));
    say("fchdir", fchdir(start));
    say("missing", chdir("missing"));
    say("file", stat("file", &found));
}

static void do_fork(void)
{
    int folder = open("folder", O_RDONLY | O_DIRECTORY);
    say("parent", fstatat(folder, "inner", &found, 0));
    pid_t child = fork();
    if (child == 0) {
        say("child", fstatat(folder, "inner", &found, 0));
        int own = openat(folder, "deep", O_RDONLY | O_DIRECTORY);
        say("own", fstatat(own, "bottom", &found, 0));
        _exit(0);
    }
    waitpid(child, NULL, 0);
    say("parent", fstatat(folder, "deep", &found, 0));
}

/* The child of vfork has its parent's memory, and writes nothing to its ring. */
static void do_vfork(void)
{
    int folder = open("folder", O_RDONLY | O_DIRECTORY);
    pid_t child = vfork();
    if (child == 0) {
        close(folder);
        (void)!open("folder/deep", O_RDONLY | O_DIRECTORY);
        (void)!stat("child", &found);
        _exit(0);
    }
    waitpid(child, NULL, 0);
    say("parent", fstatat(folder, "inner", &found, 0));
}

/* The child of vfork has a working folder of its own. */
static void do_vfork_moves(void)
{
    pid_t child = vfork();
    if (child == 0) {
        (void)!stat("file", &found);
        (void)!chdir("folder");
        (void)!stat("inner", &found);
        _exit(0);
    }
    waitpid(child, NULL, 0);
    say("parent", stat("link", &found));
}

/* Paths around the lengths of the record's first slot and of all slots. */
static void do_long(void)
{
    static const int lengths[] = {1, 19, 20, 21, 68, 69, 1023, 1024, 1025, 4000};
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        memset(text, '/', (size_t)lengths[i]);
        text[lengths[i] - 1] = '.';
        text[lengths[i]] = '\0';
        say("long", stat(text, &found));
    }
    memset(text, 'x', 300);
    text[300] = '\0';
    say("too long", stat(text, &found));
}

static void do_bad(void)
{
    char *volatile bad = (char *)1;
    say("stat", stat(bad, &found));
    say("open", open(bad, O_RDONLY));
    say("readlink", readlink(bad, text, 10));
    say("nothing", readlink(bad, text, 0));
    say("flags", fstatat(AT_FDCWD, bad, &found, ~0));
    say("mode", faccessat(AT_FDCWD, bad, ~0, 0));
    say("closed", fstatat(99, "inner", &found, 0));
    say("empty", stat("", &found));
    say("itself", fstatat(STDIN_FILENO, "", &found, AT_EMPTY_PATH));
    say("no answer", stat("file", (struct stat *)bad));
}

/* What programs built with glibc before 2.33 call. */
static void do_old(void)
{
    int (*of_path)(int, const char *, struct stat *) = dlsym(RTLD_DEFAULT, "__xstat");
    int (*of_link)(int, const char *, struct stat *) = dlsym(RTLD_DEFAULT, "__lxstat64");
    int (*at)(int, int, const char *, struct stat *, int) = dlsym(RTLD_DEFAULT, "__fxstatat");
    if (of_path == NULL || of_link == NULL || at == NULL)
        exit(3);
    say("stat", of_path(1, "file", &found));
    say("lstat", of_link(1, "link", &found));
    say("fstatat", at(1, AT_FDCWD, "missing", &found, 0));
    say("version", of_path(77, "file", &found));
}

/* Opens a folder, and uses it after the manager has answered. */
static void do_wait(void)
{
    int folder = open("folder", O_RDONLY | O_DIRECTORY);
    say("opened", folder >= 0);
    (void)!read(STDIN_FILENO, text, 1);
    say("used", fstatat(folder, "inner", &found, 0));
}

static void do_flood(void)
{
    for (int i = 0; i < 3000; i++)
        (void)!stat("file", &found);
    do_wait();
}

static void do_errno(void)
{
    errno = 4242;
    say("stat", stat("file", &found));
    printf("%d\n", errno);
    DIR *list = opendir("folder");
    printf("%d\n", errno);
    while (readdir(list) != NULL)
        continue;
    printf("%d\n", errno);
    closedir(list);
    printf("%d\n", errno);
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*run)(void);
    } ways[] = {
        {"stat", do_stat}, {"link", do_link}, {"open", do_open}, {"bases", do_bases}, {"list", do_list},
        {"walk", do_walk}, {"move", do_move}, {"fork", do_fork}, {"vfork", do_vfork}, {"long", do_long},
        {"vfork-moves", do_vfork_moves},
        {"bad", do_bad}, {"old", do_old}, {"errno", do_errno}, {"wait", do_wait}, {"flood", do_flood},
    };
    if (argc != 3 || chdir(argv[2]) != 0)
        return 2;
    root = argv[2];
    for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++)
        if (strcmp(argv[1], ways[i].name) == 0) {
            ways[i].run();
            return 0;
        }
    return 2;
}
