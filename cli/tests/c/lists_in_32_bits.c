/* A program of 32 bits as old ones are: stat, readdir and telldir without large numbers. Lists a folder: names, and whether
 * they are what stat says. */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

int main(int count, char **words) {
    if (count != 2 || sizeof(ino_t) != 4) return 2;
    DIR *folder = opendir(words[1]);
    if (!folder) return perror(words[1]), 1;
    struct dirent *entry;
    long middle = -1;
    int entries = 0, again = 0;
    while (errno = 0, (entry = readdir(folder))) {
        char path[4096];
        struct stat found;
        entries++;
        if (entries == 3) middle = telldir(folder);
        if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, "..")) continue;
        snprintf(path, sizeof path, "%s/%s", words[1], entry->d_name);
        if (lstat(path, &found)) return perror(path), 1;
        if (found.st_ino != entry->d_ino) return printf("%s has two numbers\n", path), 1;
        printf("%s\n", entry->d_name);
    }
    if (errno) return perror("readdir"), 1;
    seekdir(folder, middle);
    while (errno = 0, readdir(folder)) again++;
    if (errno) return perror("readdir"), 1;
    if (again != entries - 3) return printf("%d entries of %d again\n", again, entries), 1;
    return closedir(folder);
}
