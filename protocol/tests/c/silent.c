/* Announces itself, and then executes a program that is to be left alone, in several ways: silent WAY FILE. */
#include <fcntl.h>
#include <pthread.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

static char *const words[] = {"true", NULL};
static char *const alone[] = {"FORETELL_SOCKET=", NULL};

static void *execute(void *unused)
{
    (void)unused;
    execve("/bin/true", words, alone);
    return NULL;
}

int main(int argc, char **argv)
{
    const char *way = argc == 3 ? argv[1] : "";
    pid_t child = -1;
    pthread_t thread;
    close(open(argv[2], O_RDONLY));
    if (strcmp(way, "exec") == 0)
        execute(NULL);
    else if (strcmp(way, "exec-with-library") == 0)
        execv("/bin/true", words);
    else if (strcmp(way, "exec-in-thread") == 0)
        pthread_create(&thread, NULL, execute, NULL), pthread_join(thread, NULL);
    else if (strcmp(way, "fails") == 0)
        execve("/", words, alone);
    else if (strcmp(way, "fails-then-exec") == 0)
        execve("/", words, alone), execute(NULL);
    else if (strcmp(way, "spawn") == 0)
        posix_spawn(&child, "/bin/true", NULL, NULL, words, alone);
    else if (strcmp(way, "confined") == 0)
        prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    else if (strcmp(way, "confined-fails") == 0)
        prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), execve("/", words, alone);
    else if (strcmp(way, "fork") == 0 && (child = fork()) == 0)
        execute(NULL), _exit(1);
    else if (strcmp(way, "vfork") == 0 && (child = vfork()) == 0)
        execve("/bin/true", words, alone), _exit(1);
    if (child > 0)
        waitpid(child, NULL, 0);
    return 0;
}
