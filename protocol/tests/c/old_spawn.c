/*
 * Starts a script without a "#!" line by two versions of posix_spawn. The one to which programs from before
 * glibc 2.15 are linked hands it to the shell; today's fails (ENOEXEC is 8).
 */
#include <spawn.h>
#include <stdio.h>
#include <sys/wait.h>

typedef int spawn(pid_t *, const char *, const posix_spawn_file_actions_t *, const posix_spawnattr_t *,
                  char *const *, char *const *);

extern char **environ;
extern spawn old_spawn, old_spawnp;
__asm__(".symver old_spawn, posix_spawn@GLIBC_2.2.5");
__asm__(".symver old_spawnp, posix_spawnp@GLIBC_2.2.5");

static void start(const char *what, spawn *by, char *script)
{
    pid_t child;
    int error = by(&child, script, NULL, NULL, (char *[]){script, NULL}, environ);
    if (error == 0)
        waitpid(child, NULL, 0);
    printf("%s %d\n", what, error);
    fflush(stdout);
}

int main(int argc, char **argv)
{
    if (argc < 2)
        return 2;
    start("old", old_spawn, argv[1]);
    start("old p", old_spawnp, argv[1]);
    start("new", posix_spawn, argv[1]);
    start("new p", posix_spawnp, argv[1]);
    return 0;
}
