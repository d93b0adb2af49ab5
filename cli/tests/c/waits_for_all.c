/* Says how each child ended that it has, also from before it was executed. */
#include <stdio.h>
#include <sys/wait.h>

int main(void)
{
    int status;
    while (wait(&status) > 0)
        printf("%d\n", WEXITSTATUS(status));
    return 0;
}
