/* What every_hook.c tries of calls that start and end programs, and of prctl and syscall. */
static char *const no_arguments[] = {"true", NULL};

CLASS(of_spawn)
{
    int (*call)(pid_t *, const char *, const void *, const void *, char *const *, char *const *) = f;
    pid_t child = -1;
    int status = -1;
    switch (way) {
    case 0:
        if (call(&child, "/bin/true", NULL, NULL, no_arguments, environ) == 0)
            waitpid(child, &status, 0);
        return status;
    case 1: return call(&child, NOWHERE, NULL, NULL, no_arguments, environ);
    case 2: return call(NULL, NOWHERE, NULL, NULL, no_arguments, environ);
    }
    return none();
}

CLASS(of_add_folder_by_name)
{
    int (*call)(void *, const char *) = f;
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    pid_t child = -1;
    int status = -1;
    switch (way) {
    case 0: return call(&actions, "/");
    case 1: return call(&actions, NOWHERE);
    case 2:
        if (call(&actions, "/bin") == 0 &&
            posix_spawn(&child, "./true", &actions, NULL, no_arguments, environ) == 0)
            waitpid(child, &status, 0);
        return status;
    }
    return none();
}

CLASS(of_add_folder)
{
    int (*call)(void *, int) = f;
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    switch (way) {
    case 0: return call(&actions, folder);
    case 1: return call(&actions, -1);
    }
    return none();
}

CLASS(of_execve)
{
    int (*call)(const char *, char *const *, char *const *) = f;
    switch (way) {
    case 0: return call("/bin/true", no_arguments, environ);
    case 1: return call(NOWHERE, no_arguments, environ);
    case 2: return call("/bin/true", BAD, environ);
    }
    return none();
}

CLASS(of_execl)
{
    int (*call)(const char *, const char *, ...) = f;
    switch (way) {
    case 0: return call("/bin/true", "true", NULL, environ);
    case 1: return call(NOWHERE, "none", NULL, environ);
    }
    return none();
}

CLASS(of_execveat)
{
    int (*call)(int, const char *, char *const *, char *const *, int) = f;
    switch (way) {
    case 0: return call(folder, "/bin/true", no_arguments, environ, 0);
    case 1: return call(-1, "true", no_arguments, environ, 0);
    case 2: return call(folder, BAD, no_arguments, environ, 0);
    }
    return none();
}

CLASS(of_fexecve)
{
    int (*call)(int, char *const *, char *const *) = f;
    switch (way) {
    case 0: return call(open("/bin/true", O_RDONLY | O_CLOEXEC), no_arguments, environ);
    case 1: return call(-1, no_arguments, environ);
    case 2: return call(file, NULL, environ);
    }
    return none();
}

CLASS(of_system)
{
    int (*call)(const char *) = f;
    switch (way) {
    case 0: return call("exit 3");
    case 1: return call(NULL);
    }
    return none();
}

CLASS(of_popen)
{
    FILE *(*call)(const char *, const char *) = f;
    FILE *opened;
    switch (way) {
    case 0: opened = call("echo yes", "r"); return getc(opened) * 1000 + pclose(opened);
    case 1: return is(call("true", "x"));
    case 2: return is(call("true", BAD));
    }
    return none();
}

CLASS(of_pclose)
{
    int (*call)(FILE *) = f;
    switch (way) {
    case 0: return call(popen("exit 3", "r"));
    case 1: return call(NULL);
    case 2: return call(BAD);
    }
    return none();
}

CLASS(of_exit)
{
    void (*call)(int) = f;
    if (way == 0)
        call(5);
    return none();
}

CLASS(of_prctl)
{
    int (*call)(int, ...) = f;
    char name[16] = "";
    switch (way) {
    case 0: return call(PR_GET_DUMPABLE);
    case 1: return call(PR_SET_NAME, "renamed") * 10 + call(PR_GET_NAME, name) + name[0];
    case 2: return call(PR_GET_NAME, BAD);
    case 3: return call(-1, 1L, 2L, 3L, 4L);
    case 4: return call(PR_SET_NO_NEW_PRIVS, 1L, 0L, 0L, 0L) * 100 + (int)read(file, bytes, 5);
    }
    return none();
}

CLASS(of_syscall)
{
    long (*call)(long, ...) = f;
    switch (way) {
    case 0: return call(SYS_read, file, bytes, 9L);
    case 1: return call(SYS_read, file, BAD, 9L);
    case 2: return call(-1L);
    case 3: return call(SYS_prctl, PR_GET_DUMPABLE, 0L, 0L, 0L, 0L);
    case 4: return call(SYS_seccomp, -1L, 0L, NULL);
    case 5: return call(SYS_pread64, file, bytes, 9L, 100L);
    case 6: return is(BAD) + (call(SYS_mmap, NULL, 4096L, PROT_READ, MAP_PRIVATE, file, 1L) < 0);
    }
    return none();
}
