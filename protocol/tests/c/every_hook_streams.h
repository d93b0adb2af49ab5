/* What every_hook.c tries of calls that take or give a stream. */
CLASS(of_fopen)
{
    FILE *(*call)(const char *, const char *) = f;
    FILE *opened;
    switch (way) {
    case 0: opened = call(path, "r"); return opened != NULL ? fileno(opened) * 1000 + getc(opened) : -1;
    case 1: return is(call(path, "r+"));
    case 2: return is(call(BAD, "r"));
    case 3: return is(call(path, BAD));
    case 4: return is(call(NOWHERE, "r"));
    case 5: return is(call(path, ""));
    case 6: return is(call(path, "re,ccs=UTF-8"));
    case 7: return is(call(NULL, "r"));
    case 8: return is(call(path, NULL));
    }
    return none();
}

CLASS(of_freopen)
{
    FILE *(*call)(const char *, const char *, FILE *) = f;
    switch (way) {
    case 0: return is(call(path, "r", stream)) + getc(stream) * 10;
    case 1: return is(call(NULL, "r", stream)) + getc(stream) * 10;
    case 2: return is(call(path, "r", NULL));
    case 3: return is(call(path, "r", BAD));
    case 4: return is(call(NOWHERE, "r", stream));
    case 5: return is(call(path, BAD, stream));
    case 6: return is(call(path, "r", memory));
    }
    return none();
}

CLASS(of_fclose)
{
    int (*call)(FILE *) = f;
    switch (way) {
    case 0: return call(stream);
    case 1: return call(memory);
    case 2: return call(NULL);
    case 3: return call(BAD);
    }
    return none();
}

CLASS(of_fcloseall)
{
    int (*call)(void) = f;
    return way == 0 ? call() : none();
}

CLASS(of_fread)
{
    size_t (*call)(void *, size_t, size_t, FILE *) = f;
    switch (way) {
    case 0: return (long)call(bytes, 1, 9, stream);
    case 1: return (long)call(bytes, 700, 3, stream) * 10000 + ftell(stream);
    case 2: return (long)call(bytes, 0, 5, NULL);
    case 3: return (long)call(bytes, 5, 0, NULL);
    case 4: return (long)call(NULL, 0, 0, BAD);
    case 5: return (long)call(bytes, 1, 5, NULL);
    case 6: return (long)call(bytes, 1, 5, BAD);
    case 7: return (long)call(BAD, 1, 5, stream);
    case 8: return (long)call(BAD, 1, 900, stream);
    case 9: return (long)call(bytes, 3, 90, memory) * 100 + feof(memory);
    case 10: return (long)call(bytes, SIZE_MAX / 2, 4, NULL);
    }
    return none();
}

CLASS(of_fread_chk)
{
    size_t (*call)(void *, size_t, size_t, size_t, FILE *) = f;
    switch (way) {
    case 0: return (long)call(bytes, sizeof bytes, 7, 3, stream);
    case 1: return (long)call(bytes, 0, 0, 5, NULL);
    case 2: return (long)call(bytes, 0, 5, 0, BAD);
    case 3: return (long)call(bytes, 8, 3, 3, stream);
    case 4: return (long)call(bytes, 8, 1, 5, NULL);
    case 5: return (long)call(bytes, 8, SIZE_MAX / 2, 4, stream);
    }
    return none();
}

CLASS(of_fgets)
{
    char *(*call)(char *, int, FILE *) = f;
    switch (way) {
    case 0: return is(call(bytes, 99, stream));
    case 1: return is(call(bytes, 0, NULL));
    case 2: return is(call(bytes, -1, NULL));
    case 3: return is(call(bytes, 1, NULL));
    case 4: return is(call(bytes, 1, BAD));
    case 5: return is(call(bytes, 2, NULL));
    case 6: return is(call(bytes, 2, BAD));
    case 7: return is(call(NULL, 9, stream));
    case 8: return is(call(bytes, 99, memory));
    case 9: return is(call(BAD, 0, BAD));
    }
    return none();
}

CLASS(of_fgets_chk)
{
    char *(*call)(char *, size_t, int, FILE *) = f;
    switch (way) {
    case 0: return is(call(bytes, sizeof bytes, 99, stream));
    case 1: return is(call(bytes, 0, 0, NULL));
    case 2: return is(call(bytes, 1, 1, NULL));
    case 3: return is(call(bytes, 8, 9, stream));
    case 4: return is(call(bytes, 8, 5, NULL));
    }
    return none();
}

CLASS(of_getc)
{
    int (*call)(FILE *) = f;
    switch (way) {
    case 0: return call(stream);
    case 1: while (way++ < 600) call(stream); return ftell(stream);
    case 2: return call(NULL);
    case 3: return call(BAD);
    case 4: return call(memory);
    }
    return none();
}

CLASS(of_getchar)
{
    int (*call)(void) = f;
    switch (way) {
    case 0: return call();
    case 1: stdin = NULL; return call();
    case 2: stdin = memory; return call();
    }
    return none();
}

CLASS(of_gets)
{
    char *(*call)(char *, size_t) = f;
    switch (way) {
    case 0: return is(call(bytes, sizeof bytes));
    case 1: return is(call(BAD, sizeof bytes));
    case 2: stdin = memory; return is(call(bytes, sizeof bytes));
    }
    return none();
}

CLASS(of_getline)
{
    ssize_t (*call)(char **, size_t *, FILE *) = f;
    static char *line;
    static size_t size;
    switch (way) {
    case 0: return call(&line, &size, stream);
    case 1: return call(NULL, &size, NULL);
    case 2: return call(&line, NULL, NULL);
    case 3: return call(NULL, NULL, BAD);
    case 4: return call(&line, &size, NULL);
    case 5: return call(BAD, &size, stream);
    case 6: return call(&line, &size, memory);
    }
    return none();
}

CLASS(of_getdelim)
{
    ssize_t (*call)(char **, size_t *, int, FILE *) = f;
    static char *line;
    static size_t size;
    switch (way) {
    case 0: return call(&line, &size, 'w', stream);
    case 1: return call(NULL, &size, 'w', NULL);
    case 2: return call(&line, NULL, 'w', BAD);
    case 3: return call(&line, &size, 'w', NULL);
    }
    return none();
}

CLASS(of_fscanf)
{
    int (*call)(FILE *, const char *, ...) = f;
    int number = 0;
    switch (way) {
    case 0: return call(stream, "%d", &number) * 1000 + number;
    case 1: return call(stream, "");
    case 2: return call(stream, NULL);
    case 3: return call(NULL, "%d", &number);
    case 4: return call(stream, BAD);
    case 5: return call(memory, "%d", &number) * 1000 + number;
    }
    return none();
}

CLASS(of_scanf)
{
    int (*call)(const char *, ...) = f;
    int number = 0;
    switch (way) {
    case 0: return call("%d", &number) * 1000 + number;
    case 1: return call(NULL);
    case 2: return call(BAD);
    case 3: stdin = memory; return call("%d", &number) * 1000 + number;
    }
    return none();
}

/* The v-forms, by a function that has variable arguments. */
static long scan(void *f, bool of_stdin, FILE *from, const void *format, ...)
{
    va_list values;
    va_start(values, format);
    int result = of_stdin ? AS(int, const void *, va_list)(format, values)
                          : AS(int, FILE *, const void *, va_list)(from, format, values);
    va_end(values);
    return result;
}

CLASS(of_vfscanf)
{
    int number = 0;
    switch (way) {
    case 0: return scan(f, false, stream, "%d", &number) * 1000 + number;
    case 1: return scan(f, false, stream, NULL);
    case 2: return scan(f, false, NULL, "%d", &number);
    case 3: return scan(f, false, memory, "%d", &number) * 1000 + number;
    }
    return none();
}

CLASS(of_vscanf)
{
    int number = 0;
    switch (way) {
    case 0: return scan(f, true, NULL, "%d", &number) * 1000 + number;
    case 1: return scan(f, true, NULL, NULL);
    }
    return none();
}

CLASS(of_fwscanf)
{
    int (*call)(FILE *, const wchar_t *, ...) = f;
    int number = 0;
    switch (way) {
    case 0: return call(wide, L"%d", &number) * 1000 + number;
    case 1: return call(wide, NULL);
    case 2: return call(NULL, L"%d", &number);
    }
    return none();
}

CLASS(of_wscanf)
{
    int (*call)(const wchar_t *, ...) = f;
    int number = 0;
    switch (way) {
    case 0: return call(L"%d", &number) * 1000 + number;
    case 1: return call(NULL);
    }
    return none();
}

CLASS(of_vfwscanf)
{
    int number = 0;
    switch (way) {
    case 0: return scan(f, false, wide, L"%d", &number) * 1000 + number;
    case 1: return scan(f, false, NULL, L"%d", &number);
    }
    return none();
}

CLASS(of_vwscanf)
{
    int number = 0;
    switch (way) {
    case 0: return scan(f, true, NULL, L"%d", &number) * 1000 + number;
    case 1: return scan(f, true, NULL, NULL);
    }
    return none();
}

CLASS(of_getwc)
{
    wint_t (*call)(FILE *) = f;
    switch (way) {
    case 0: return (long)call(wide);
    case 1: while (way++ < 600) call(wide); return ftell(wide);
    case 2: return (long)call(NULL);
    case 3: return (long)call(BAD);
    case 4: return (long)call(memory);
    case 5: return (long)call(stream);
    }
    return none();
}

CLASS(of_fgetws)
{
    wchar_t *(*call)(wchar_t *, int, FILE *) = f;
    wchar_t *to = (wchar_t *)(void *)bytes;
    switch (way) {
    case 0: return is(call(to, 99, wide));
    case 1: return is(call(to, 0, NULL));
    case 2: return is(call(to, -1, BAD));
    case 3: return is(call(to, 1, NULL));
    case 4: return is(call(to, 2, NULL));
    case 5: return is(call(NULL, 9, wide));
    case 6: return is(call(to, 99, memory));
    }
    return none();
}

CLASS(of_fgetws_chk)
{
    wchar_t *(*call)(wchar_t *, size_t, int, FILE *) = f;
    wchar_t *to = (wchar_t *)(void *)bytes;
    switch (way) {
    case 0: return is(call(to, 1000, 99, wide));
    case 1: return is(call(to, 0, 0, NULL));
    case 2: return is(call(to, 1, 1, NULL));
    case 3: return is(call(to, 8, 9, wide));
    }
    return none();
}

CLASS(of_fseek)
{
    int (*call)(FILE *, long, int) = f;
    switch (way) {
    case 0: return call(stream, 1000, SEEK_SET) * 1000 + getc(stream);
    case 1: return call(stream, 0, 99);
    case 2: return call(stream, -1, SEEK_SET);
    case 3: return call(NULL, 0, SEEK_SET);
    case 4: return call(BAD, 0, 99);
    case 5: return call(memory, 2, SEEK_SET) * 1000 + getc(memory);
    }
    return none();
}

CLASS(of_fsetpos)
{
    int (*call)(FILE *, const void *) = f;
    fpos_t at = {0};
    switch (way) {
    case 0: fgetpos(stream, &at); (void)getc(stream); return call(stream, &at) + getc(stream) * 10;
    case 1: return call(stream, BAD);
    case 2: return call(NULL, &at);
    case 3: return call(BAD, BAD);
    }
    return none();
}

CLASS(of_rewind)
{
    void (*call)(FILE *) = f;
    switch (way) {
    case 0: call(stream); return getc(stream);
    case 1: call(NULL); return 0;
    case 2: call(BAD); return 0;
    case 3: call(memory); return getc(memory);
    }
    return none();
}
