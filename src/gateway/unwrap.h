/*
 * Code as language models hand it over: inside a dictionary, inside a markdown fence, or a fence inside a dictionary.
 * One pure function finds the code.
 *
 * A dictionary is the whole text: {"generated_code": "…"} or {'code': '…'}, as JSON, else as a Python literal with all
 * of Python's quoting. generated_code goes before code; of a key that is there twice the last counts; other keys are
 * read over, `timeout` too, because a text must not change the limits of the request that carries it.
 *
 * A fence is the whole text: a first line of three or more backticks with nothing or the name of a language that is
 * known after them, and as many backticks at the end of the text. What stands between, other fences included, is the
 * code, less the indentation that the first line has.
 *
 * Everything else is code and stays as it is, to the byte: prose around a fence, a fence inside a string, code that
 * begins with the word "python", a dictionary without such a key.
 */
#ifndef HC_GATEWAY_UNWRAP_H
#define HC_GATEWAY_UNWRAP_H

#include <stdbool.h>
#include <stddef.h>

enum {
    UNWRAP_NAME_SIZE = 64, /* of a language's name, with its NUL */
    UNWRAP_DEPTH = 16,     /* of lists and dictionaries inside the dictionary; deeper ones make it code */
};

/* Whether `name`, as it stands in a fence, is a language. */
typedef bool unwrap_known(void *data, const char *name);

struct unwrapped {
    char *code; /* malloc'ed, NUL-terminated; may hold NULs */
    size_t length;
    /* What the fence, else the dictionary's "language", says; "" when neither does. It is nearer to the code than the
     * request's own field, which many clients always fill with "python": let it win. A fence's name is always known;
     * a dictionary's may be any word. */
    char language[UNWRAP_NAME_SIZE];
};

/* `text` is UTF-8. 0, or -ENOMEM with *out untouched. Linear in `length`; uses a few times `length` of memory. */
int unwrap_code(const char *text, size_t length, unwrap_known *known, void *data, struct unwrapped *out);

#endif
