/* Prints how each of its children ended, including those from before it was executed. */
#include <stdio.h>
#include <sys/wait.h>

int main(void)
{
    int status;
    while (wait(&status) > 0)
        printf("%d\n", WEXITSTATUS(status));
    return 0;
}
