/* JSON on its way out, a piece at a time, through a buffer of fixed size: a list of any length takes no more memory. */
#ifndef HC_CELL_FILES_JSON_H
#define HC_CELL_FILES_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct files_json {
    int fd;
    int status;  /* 0, or the -errno of the first write that failed: all later ones do nothing */
    bool follow; /* something stands before, in the same object or list */
    size_t used;
    char data[8192];
};

void files_json_init(struct files_json *json, int fd);
/* The key is NULL within a list, and for the outermost value. */
void files_json_open(struct files_json *json, const char *key, char bracket);
void files_json_close(struct files_json *json, char bracket);
void files_json_text(struct files_json *json, const char *key, const char *text);
/* Not UTF-8: U+FFFD in the place of what is not. */
void files_json_bytes(struct files_json *json, const char *key, const char *bytes, size_t length);
/* Not UTF-8: the whole in base64, under key_base64. */
void files_json_name(struct files_json *json, const char *key, const char *bytes, size_t length);
void files_json_number(struct files_json *json, const char *key, int64_t value);
void files_json_bool(struct files_json *json, const char *key, bool value);
void files_json_null(struct files_json *json, const char *key);
/* As it is, between values. */
void files_json_raw(struct files_json *json, const char *bytes, size_t length);
/* A line's end, and all of it out. 0 or -errno. */
int files_json_line(struct files_json *json);
int files_json_flush(struct files_json *json);

bool files_utf8_valid(const char *bytes, size_t length);

#endif
