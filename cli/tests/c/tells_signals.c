/* Prints each signal that it gets, with its value; ends at SIGTERM with exit code 44. */
#define _GNU_SOURCE 1
#include <signal.h>
#include <stdio.h>

int main(void)
{
    sigset_t all;
    siginfo_t info;
    sigfillset(&all);
    sigprocmask(SIG_BLOCK, &all, NULL);
    setvbuf(stdout, NULL, _IOLBF, 0);
    puts("ready");
    for (;;) {
        int signal = sigwaitinfo(&all, &info);
        if (signal < 0 || signal == SIGCHLD)
            continue;
        printf("%d %d\n", signal, info.si_code == SI_QUEUE ? info.si_value.sival_int : 0);
        if (signal == SIGTERM)
            return 44;
    }
}
