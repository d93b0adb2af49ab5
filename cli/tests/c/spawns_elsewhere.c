/* Spawns a relative name in another folder, where it is another program: spawns_elsewhere FOLDER NAME. */
#define _GNU_SOURCE
#include <spawn.h>
#include <stdio.h>
#include <sys/wait.h>

extern char **environ;

int main(int argc, char **argv)
{
    posix_spawn_file_actions_t actions;
    pid_t pid;
    int status = 0;
    if (argc != 4)
        return 2;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addchdir_np(&actions, argv[1]);
    int error = posix_spawn(&pid, argv[2], &actions, NULL, argv + 2, environ);
    if (error == 0)
        waitpid(pid, &status, 0);
    printf("%d %d\n", error, status);
    return 0;
}
