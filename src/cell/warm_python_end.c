/* See warm_python_end.h. */
#include "cell/warm_python_end.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    METH_NOARGS = 4,
    TP_BASES = 49, /* numbers of slots, and bits of flags, as typeslots.h and object.h have them */
    TP_DEL = 53,
    TP_FINALIZE = 80,
    MOST_OBJECTS = 100000, /* that are looked at */
    MOST_STREAMS = 9,
};
#define IS_HEAP_TYPE (1ul << 9)
#define IS_TYPE (1ul << 31)

struct addresses {
    size_t count;
    object **item; /* sorted */
};

static struct end {
    object *told; /* what all of this is in */
    object *kept, *get_objects, *unfreeze, *get_debug, *count_handlers, *callbacks, *garbage, *filters, *first_filter;
    object *file, *buffers, *text, *reference, *proxies;
    object *modules, *main, *builtins, *sys;
    ssize_t own_sys, own_builtins, own_filters;
    long own_handlers;
    struct addresses types, own_modules; /* that there were before the program */
    object *marker, *excepthook, *out, *error;
    object *stream[MOST_STREAMS];
    size_t stream_count;
} end;

/* ---- what there was ---- */

static int by_address(const void *a, const void *b)
{
    uintptr_t one = *(const uintptr_t *)a, other = *(const uintptr_t *)b;
    return one < other ? -1 : one > other;
}

static struct addresses addresses_of(object *list)
{
    struct addresses out = {.count = (size_t)python.list_size(list)};
    if (!(out.item = calloc(out.count + 1, sizeof(object *))))
        _exit(3);
    for (size_t i = 0; i < out.count; i++)
        out.item[i] = python.item(list, (ssize_t)i);
    qsort(out.item, out.count, sizeof(object *), by_address);
    return out;
}

static bool was_there(const struct addresses *list, object *one)
{
    return bsearch(&one, list->item, list->count, sizeof(object *), by_address) != NULL;
}

static long count_handlers(void)
{
    object *count = python.call(end.count_handlers, NULL);
    long number = count ? python.number(count) : -1;
    python_drop(count);
    return number;
}

void python_end_prepare(object *told, object *facts)
{
    object *types, *modules;
    end.told = told;
    if (!python.parse(facts, "(OOOOOOOO)(OOOOO)(OOOO)(OO)", &end.kept, &end.get_objects, &end.unfreeze, &end.get_debug,
                      &end.count_handlers, &end.callbacks, &end.garbage, &end.filters, &end.file, &end.buffers,
                      &end.text, &end.reference, &end.proxies, &end.modules, &end.main, &end.builtins, &end.sys, &types,
                      &modules))
        python_must(NULL);
    end.types = addresses_of(types);
    end.own_modules = addresses_of(modules);
    end.own_sys = python.dict_size(end.sys);
    end.own_builtins = python.dict_size(end.builtins);
    end.own_filters = python.list_size(end.filters);
    end.first_filter = end.own_filters > 0 ? python.item(end.filters, 0) : NULL;
    end.own_handlers = count_handlers();
    end.excepthook = python.sys_get("excepthook");
}

void python_end_begin(object *made)
{
    end.marker = python_must(python.new_list(0)); /* made after the freeze, so that the collector knows of it */
    end.out = python.sys_get("stdout");
    end.error = python.sys_get("stderr");
    for (ssize_t i = made ? python.list_size(made) : 0; i-- > 0 && end.stream_count < MOST_STREAMS;)
        end.stream[end.stream_count++] = python.item(made, i);
}

/* ---- what is left ---- */

/* Nothing happens when one of these goes away. */
static bool is_harmless(object *type)
{
    if (python.slot(type, TP_FINALIZE) || python.slot(type, TP_DEL))
        return false;
    if (was_there(&end.types, type))
        return true;
    object *bases = python.flags(type) & IS_HEAP_TYPE ? python.slot(type, TP_BASES) : NULL;
    for (ssize_t i = bases ? python.tuple_size(bases) : 0; i-- > 0;)
        if (!is_harmless(python.member(bases, i)))
            return false;
    return bases != NULL;
}

static bool is_stream(const object *one)
{
    for (size_t i = 0; i < end.stream_count; i++)
        if (end.stream[i] == one)
            return true;
    return false;
}

static bool is_one_of(object *tuple, const object *one)
{
    for (ssize_t i = python.tuple_size(tuple); i-- > 0;)
        if (python.member(tuple, i) == one)
            return true;
    return false;
}

static bool says_true(object *self, const char *name)
{
    object *said = python.get(self, name);
    python_drop(said);
    return said == python.yes;
}

/* A file of Python's own, down to its fd. What it is made of is asked of these types alone. */
static bool is_closed_file(object *one)
{
    if (one->type == end.file)
        return says_true(one, "closed");
    bool is_text = one->type == end.text;
    if (!is_text && !is_one_of(end.buffers, one->type))
        return false;
    object *below = python.get(one, is_text ? "buffer" : "raw");
    bool closed =
        below && (below->type == end.file || (is_text && is_one_of(end.buffers, below->type))) && is_closed_file(below);
    python_drop(below);
    return closed;
}

/* Nothing of a weak reference's callback can be noticed: there is none, or it is that of the caches of abstract classes
 * (_abc.c), a function without a module. */
static bool is_unheard(object *reference)
{
    if (reference->type != end.reference)
        return false;
    object *callback = python.get(reference, "__callback__"), *name = NULL, *module = NULL;
    bool unheard = callback == python.none;
    if (callback && callback->type == end.get_objects->type) {
        name = python.get(callback, "__name__");
        module = python.get(callback, "__module__");
        const char *text = name ? python.name(name) : NULL;
        unheard = text && strcmp(text, "_destroy") == 0 && module == python.none;
    }
    python_drop(callback);
    python_drop(name);
    python_drop(module);
    return unheard;
}

static bool has_marker(object *objects)
{
    for (ssize_t i = python.list_size(objects); i-- > 0;)
        if (python.item(objects, i) == end.marker)
            return true;
    return false;
}

static bool leaves_nothing(object *objects)
{
    ssize_t count = python.list_size(objects);
    object *seen = NULL; /* the last type; there are often many of one */
    for (ssize_t i = 0; i < count; i++) {
        object *one = python.item(objects, i);
        if (!one || one == end.kept)
            return false; /* the program has called gc.unfreeze(): its own cannot be told from the rest */
        if (one->type != seen && !is_stream(one) && !is_closed_file(one)) {
            if (!is_harmless(one->type))
                return false;
            seen = one->type;
        }
        if (python.flags(one->type) & IS_TYPE && !is_harmless(one))
            return false;
        if (is_one_of(end.proxies, one->type) || (python.is_subtype(one->type, end.reference) && !is_unheard(one)))
            return false;
    }
    return count <= MOST_OBJECTS;
}

/* A module that is none, or whose library may have something to do at the end. */
static bool has_new_library(void)
{
    ssize_t at = 0;
    for (object *key, *module; python.next(end.modules, &at, &key, &module);) {
        if (was_there(&end.own_modules, module))
            continue;
        object *file = module->type == python.module_type ? python.find(python.module_dict(module), "__file__") : key;
        if (file == key)
            return true;
        const char *name = file && file->type == key->type ? python.name(file) : NULL;
        size_t length = name ? strlen(name) : 0;
        if (length > 3 && strcmp(name + length - 3, ".so") == 0)
            return true;
    }
    return false;
}

/* ---- what would be seen of the end ---- */

/* What was written is out, and its stream is the one that the program began with. */
static bool is_written(const char *name, object *began)
{
    object *now = python.sys_get(name);
    if (!now || now != began || now->type != end.text || !says_true(now, "write_through"))
        return false;
    object *below = python.get(now, "buffer"); /* one that was detached has none */
    bool is_file = below && below->type == end.file;
    python_drop(below);
    return is_file;
}

static bool has_one_thread(void)
{
    struct stat tasks;
    return stat("/proc/self/task", &tasks) == 0 && tasks.st_nlink == 3;
}

static bool is_quiet(void)
{
    object *debug = python.call(end.get_debug, NULL), *warnings = python.find(end.modules, "warnings");
    bool quiet = debug && python.number(debug) == 0 && python.list_size(end.callbacks) == 0 &&
                 python.list_size(end.garbage) == 0 && python.list_size(end.filters) == end.own_filters &&
                 (!end.own_filters || python.item(end.filters, 0) == end.first_filter);
    python_drop(debug);
    if (!warnings)
        return quiet;
    return quiet && warnings->type == python.module_type &&
           python.find(python.module_dict(warnings), "filters") == end.filters;
}

/* ---- the exit code ---- */

/* Of a program that ended by an error: the frame that is told of is its own, and did not get beyond this line. */
static bool ended_by_error(void)
{
    object *error = python.find(end.sys, "last_value"), *trace = python.find(end.sys, "last_traceback");
    if (python.dict_size(end.sys) != end.own_sys + 3 || !python.find(end.sys, "last_type") || !error || !trace ||
        trace->type != python.trace_type || python.is_subtype(error->type, *python.keyboard_interrupt))
        return false;
    object *frame = python.get(trace, "tb_frame"), *code = frame ? python.get(frame, "f_code") : NULL;
    object *name = code ? python.get(code, "co_name") : NULL, *globals = frame ? python.get(frame, "f_globals") : NULL;
    object *back = frame ? python.get(frame, "f_back") : NULL, *line = frame ? python.get(frame, "f_lineno") : NULL;
    object *there = python.get(trace, "tb_lineno");
    const char *text = name ? python.name(name) : NULL;
    bool is_own = text && strcmp(text, "<module>") == 0 && globals == end.main && back == python.none && line &&
                  there && line->type == there->type && python.number(line) == python.number(there);
    object *held[] = {frame, code, name, globals, back, line, there};
    for (size_t i = 0; i < sizeof held / sizeof(object *); i++)
        python_drop(held[i]);
    return is_own;
}

/* -1: unknown. PyRun_SimpleFile takes __file__ and __cached__ away when the program is through, but SystemExit leaves
 * them. Handlers of the program's own may have changed what is looked at. */
static int find_exit_code(void)
{
    if (python.find(end.main, "__file__") || python.find(end.main, "__cached__") ||
        !python.find(end.main, "__spec__") || python.dict_size(end.builtins) != end.own_builtins ||
        count_handlers() != end.own_handlers || python.sys_get("excepthook") != end.excepthook)
        return -1;
    if (!python.find(end.sys, "last_type") && !python.find(end.sys, "last_value") &&
        !python.find(end.sys, "last_traceback"))
        return python.dict_size(end.sys) == end.own_sys ? 0 : -1;
    return ended_by_error() ? 1 : -1;
}

/* ---- the end ---- */

/* True: it is spared what the program could not notice. */
static bool cut_short(void)
{
    /* Not in the middle of the program, by atexit._run_exitfuncs(). */
    if (python.frame() || !is_written("stdout", end.out) || !is_written("stderr", end.error) || !has_one_thread() ||
        !is_quiet() || has_new_library())
        return false;
    object *objects = python.call(end.get_objects, NULL);
    if (objects && !has_marker(objects)) {
        python.drop(objects);
        python.call_method(end.kept, "clear", NULL); /* the program has called gc.freeze(): all stays as it is */
        return true;
    }
    bool nothing = objects && leaves_nothing(objects);
    int code = nothing ? find_exit_code() : -1;
    if (code >= 0) {
        /* As exit() does, but for the ends of libraries, of which there are as many as modules, and none that could
         * tell. Their output is another matter. */
        fflush(NULL);
        _exit(code);
    }
    python.clear_error();
    if (nothing)
        python.clear(end.modules);
    python_drop(objects);
    return nothing;
}

static object *leave(object *self, object *unused)
{
    (void)self, (void)unused;
    if (!end.told)
        return python.build(""); /* somebody has kept it, and called it again */
    object *result = cut_short() ? python.build("") : NULL;
    if (!result) {
        python.clear_error(); /* the interpreter's own end will tell */
        result = python.call(end.unfreeze, NULL);
    }
    object *told = end.told;
    end.told = NULL;
    python.drop(told);
    return result;
}

object *python_end_handler(void)
{
    static struct python_method method = {"leave", leave, METH_NOARGS, NULL};
    return python_must(python.function(&method, NULL, NULL));
}
