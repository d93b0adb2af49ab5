/* Missing and odd environments that no shell makes: what exec returns, and what the executed program gets. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;
static char *self;

static void show(char **argv)
{
    for (char **entry = environ; *entry != NULL; entry++)
        puts(*entry);
    /* As programs that find the auxiliary vector by walking from their arguments. */
    char **end = argv;
    while (*end++ != NULL)
        ;
    while (*end++ != NULL)
        ;
    unsigned long *entry = (unsigned long *)end;
    while (entry[0] != AT_NULL && entry[0] != AT_PAGESZ)
        entry += 2;
    printf("page size %lu, the same %d\n", entry[1], entry[1] == getauxval(AT_PAGESZ));
}

static void tell(const char *what, int status)
{
    if (WIFSIGNALED(status))
        printf("%s: signal %d\n", what, WTERMSIG(status));
    else
        printf("%s: %s\n", what, strerrorname_np(WEXITSTATUS(status)));
    fflush(stdout);
}

static void execute(const char *what, char **variables)
{
    char *arguments[] = {self, "show", NULL};
    int status = 0;
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        execve(self, arguments, variables);
        _exit(errno);
    }
    waitpid(pid, &status, 0);
    tell(what, status);
    pid = vfork();
    if (pid == 0) {
        execve(self, arguments, variables);
        _exit(errno);
    }
    waitpid(pid, &status, 0);
    tell(what, status);
    int error = posix_spawn(&pid, self, NULL, NULL, arguments, variables);
    printf("%s, spawned: %s\n", what, strerrorname_np(error));
    if (error == 0)
        waitpid(pid, &status, 0);
    fflush(stdout);
    pid = fork();
    if (pid == 0) {
        environ = variables;
        execv(self, arguments);
        _exit(errno);
    }
    waitpid(pid, &status, 0);
    tell(what, status);
}

static int fits(char *last, size_t length, posix_spawn_file_actions_t *actions)
{
    static char word[100001];
    char *words[] = {"true", word, word, last, NULL};
    char *variables[] = {"A=1", NULL};
    pid_t pid;
    int status = 0;
    memset(word, 'x', sizeof word - 1);
    memset(last, 'x', length);
    last[length] = '\0';
    if (posix_spawn(&pid, "/bin/true", actions, NULL, words, variables) != 0)
        return 0;
    waitpid(pid, &status, 0);
    return status == 0;
}

/* The longest argument with which exec works is as long as without foretell. */
static size_t longest(posix_spawn_file_actions_t *actions)
{
    size_t low = 0;
    size_t high = 100000;
    char *last = malloc(high + 1);
    while (high - low > 1) {
        size_t middle = (low + high) / 2;
        if (fits(last, middle, actions))
            low = middle;
        else
            high = middle;
    }
    free(last);
    return low;
}

/* The kernel takes a string of 128 KiB at most, with its NUL: the library's name in front of it must not be too much. */
static void long_library(posix_spawn_file_actions_t *actions)
{
    char *entry = malloc(131072);
    memset(entry, 'x', 131071);
    memcpy(entry, "LD_PRELOAD=", 11);
    entry[131071] = '\0';
    pid_t pid;
    char *words[] = {"true", NULL};
    int error = posix_spawn(&pid, "/bin/true", actions, NULL, words, (char *[]){entry, NULL});
    printf("a long library: %s\n", strerrorname_np(error));
    fflush(stdout);
    if (error == 0)
        waitpid(pid, NULL, 0);
    free(entry);
}

static void fill_up(void)
{
    struct rlimit stack = {.rlim_cur = 1 << 20, .rlim_max = 1 << 20};
    setrlimit(RLIMIT_STACK, &stack); /* a quarter of it is for arguments and environment */
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 9, "/dev/null", O_RDONLY, 0);
    size_t plain = longest(NULL);
    printf("fits: %zu, with file actions %zu\n", plain, longest(&actions));
    long_library(NULL);
    long_library(&actions);
    posix_spawn_file_actions_destroy(&actions);
}

int main(int argc, char **argv)
{
    self = argv[0];
    if (argc == 2 && strcmp(argv[1], "show") == 0) {
        show(argv);
        return 0;
    }
    /* An entry that fills the last mapped page and has no zero byte. */
    char *pages = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    mprotect(pages + 4096, 4096, PROT_NONE);
    memcpy(pages + 4096 - 11, "LD_PRELOAD=", 11);
    char **table = (char **)(pages + 4096 - sizeof(char *));
    execute("1 as an array", (char **)1);
    execute("none at all", NULL);
    execute("empty", (char *[]){NULL});
    execute("1 as a string", (char *[]){"A=1", (char *)1, NULL});
    execute("a string without an end", (char *[]){pages + 4096 - 11, NULL});
    *table = "A=1";
    execute("an array without an end", table);
    table = (char **)(pages + 4096 - sizeof(char *) / 2);
    memcpy(table, &(char *){"A=1"}, sizeof(char *) / 2);
    execute("an array that ends within an element", table);
    execute("odd entries", (char *[]){"Z=1", "no value", "A=2", "Z=3", "", "=", "=x", "A=", "LAST=1",
                                      NULL});
    execute("libraries", (char *[]){"LD_PRELOAD=", "A=1", "LD_PRELOAD=libc.so.6", "B=2", NULL});
    execute("an empty library", (char *[]){"A=1", "LD_PRELOAD=", NULL});
    execute("a foreign variable", (char *[]){"FORETELL_PRIVATE=1", "FORETELL=1", NULL});
    fill_up();
    return 0;
}
