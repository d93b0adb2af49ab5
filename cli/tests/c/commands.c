/* system and popen: what they return, and what a shell is given by them. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static void commands(void)
{
    printf("shell: %d\n", system(NULL) != 0);
    printf("exit: %x\n", (unsigned)system("exit 5"));
    printf("signal: %x\n", (unsigned)system("kill -9 $$"));
    printf("not found: %x\n", (unsigned)system("exec /nonexistent/program 2>/dev/null"));
    fflush(stdout);
    printf("arguments: %x\n", (unsigned)system("tr '\\0' ' ' < /proc/$$/cmdline; echo"));
    fflush(stdout);
    printf("a dash: %x %x\n", (unsigned)system("-e 2>/dev/null"), (unsigned)system("--version 2>/dev/null"));
    fflush(stdout);
    printf("state: %x\n", (unsigned)system("grep ^Sig[BIC] /proc/self/status; ls /proc/self/fd"));
    fflush(stdout);
    signal(SIGINT, SIG_IGN);
    printf("ignored: %x\n", (unsigned)system("grep ^SigI /proc/self/status; kill -2 $$; echo on"));
    signal(SIGINT, SIG_DFL);
    /* A signal meant for the command does not end the program. */
    printf("interrupted: %x\n", (unsigned)system("kill -2 $PPID; kill -3 $PPID; kill -2 $$"));
    struct sigaction now;
    sigset_t mask;
    sigaction(SIGINT, NULL, &now);
    sigprocmask(SIG_BLOCK, NULL, &mask);
    printf("as before: %d %d\n", now.sa_handler == SIG_DFL, sigismember(&mask, SIGCHLD));
    signal(SIGCHLD, SIG_IGN);
    int status = system("exit 3");
    printf("nobody's child: %d %s\n", status, status < 0 ? strerrorname_np(errno) : "");
    signal(SIGCHLD, SIG_DFL);
    clearenv();
    printf("no environment: %x\n", (unsigned)system("env | grep -v ^_= | grep -v ^PWD="));
    fflush(stdout);
}

static void copy(FILE *stream)
{
    char line[256];
    while (fgets(line, sizeof line, stream) != NULL)
        fputs(line, stdout);
}

/* Through a pointer, because the compiler warns of pclose on a stream that is not from popen. */
static int (*volatile close_stream)(FILE *) = fclose;

static void pipes(const char *path)
{
    char command[4096];
    errno = 0;
    printf("bad modes: %d %d", popen("true", "x") == NULL, popen("true", "rw") == NULL);
    printf(" %s\n", strerrorname_np(errno));
    snprintf(command, sizeof command, "cat '%s'; exit 7", path);
    FILE *stream = popen(command, "r");
    printf("descriptor %d, closes %d\n", fileno(stream), fcntl(fileno(stream), F_GETFD));
    copy(stream);
    printf("pclose: %x\n", (unsigned)pclose(stream));
    fflush(stdout);
    stream = popen("wc -c; exit 1", "we");
    printf("descriptor %d, closes %d\n", fileno(stream), fcntl(fileno(stream), F_GETFD));
    fflush(stdout);
    fputs("some text\n", stream);
    printf("fclose: %x\n", (unsigned)close_stream(stream));
    FILE *first = popen("cat", "w");
    FILE *second = popen("ls /proc/self/fd | wc -l", "r");
    copy(second);
    printf("pclose: %x", (unsigned)pclose(second));
    fflush(stdout);
    printf(" %x\n", (unsigned)pclose(first));
    stream = popen("-c 2>/dev/null", "r");
    copy(stream);
    printf("a dash: %x\n", (unsigned)pclose(stream));
    fflush(stdout);
    stream = popen("exec <&-; exit 0", "w");
    signal(SIGPIPE, SIG_IGN);
    usleep(200000);
    fputs("nobody reads this\n", stream);
    printf("a pipe that nobody reads: %d\n", pclose(stream));
}

static void *sleep_long(void *path)
{
    char command[4096];
    snprintf(command, sizeof command, "echo $$ > '%s'; exec sleep 1000", (char *)path);
    system(command);
    return NULL;
}

/* The command is ended with the thread that waits for it. */
static void cancel(char *path)
{
    pthread_t thread;
    void *result = NULL;
    int pid = 0;
    unlink(path);
    pthread_create(&thread, NULL, sleep_long, path);
    while (pid == 0) {
        usleep(10000);
        FILE *stream = fopen(path, "r");
        if (stream != NULL && fscanf(stream, "%d\n", &pid) != 1)
            pid = 0;
        if (stream != NULL)
            fclose(stream);
    }
    pthread_cancel(thread);
    pthread_join(thread, &result);
    printf("cancelled: %d, command gone: %d\n", result == PTHREAD_CANCELED,
           kill(pid, 0) != 0 && errno == ESRCH);
}

int main(int argc, char **argv)
{
    if (argc != 3)
        return 2;
    cancel(argv[2]);
    pipes(argv[1]);
    commands();
    return 0;
}
