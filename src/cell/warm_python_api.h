/*
 * The interpreter's own functions, looked up by name, as the library is preloaded into others too. All of them are of
 * its stable interface, or older than it.
 */
#ifndef HC_CELL_WARM_PYTHON_API_H
#define HC_CELL_WARM_PYTHON_API_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

typedef struct object { /* the head of every object, of interpreters that are not built to watch themselves */
    ssize_t references;
    struct object *type;
} object;

struct python_method {
    const char *name;
    object *(*function)(object *self, object *arguments);
    int flags;
    const char *text;
};

struct python {
    int (*ensure)(void);
    void (*release)(int state), (*drop)(object *self);
    void (*before_fork)(void), (*after_fork)(void);
    object *(*frame)(void);
    object *(*sys_get)(const char *name);
    int (*sys_set)(const char *name, object *value);
    object *(*call)(object *function, object *arguments), *(*call_method)(object *self, const char *name, const char *);
    object *(*run)(object *code, object *globals, object *locals);
    object *(*function)(struct python_method *method, object *self, object *module);
    object *(*build)(const char *format, ...);
    int (*parse)(object *tuple, const char *format, ...);
    object *(*get)(object *self, const char *name);
    void (*print_error)(void), (*clear_error)(void);
    object *(*bytes)(const char *text), *(*new_list)(ssize_t size), *(*item)(object *list, ssize_t at);
    object *(*member)(object *tuple, ssize_t at), *(*find)(object *dict, const char *name);
    object *(*module_dict)(object *module);
    int (*append)(object *list, object *one), (*is_subtype)(object *type, object *of);
    int (*next)(object *dict, ssize_t *at, object **key, object **value);
    ssize_t (*list_size)(object *list), (*tuple_size)(object *tuple), (*dict_size)(object *dict);
    void (*clear)(object *dict);
    char *(*text)(object *bytes);
    const char *(*name)(object *text);
    long (*number)(object *self);
    object *(*slot)(object *type, int slot);
    unsigned long (*flags)(object *type);
    object *none, *yes, *module_type, *trace_type;
    object **keyboard_interrupt;
};

extern struct python python;

void python_look_up(void); /* a process whose interpreter lacks something ends */
/* What it raises ends the process, as it ends an interpreter. */
object *python_must(object *result);
void python_drop(object *one); /* or NULL */

#endif
