/* See warm_python_api.h. */
#include "cell/warm_python_api.h"

#include <dlfcn.h>
#include <unistd.h>

/* A preloaded library has nobody to carry its state. */
struct python python;

static void find(const char *name, void **function)
{
    if (!(*function = dlsym(RTLD_DEFAULT, name)))
        _exit(3);
}

void python_look_up(void)
{
    find("PyGILState_Ensure", (void **)&python.ensure);
    find("PyGILState_Release", (void **)&python.release);
    find("Py_DecRef", (void **)&python.drop);
    find("PyOS_BeforeFork", (void **)&python.before_fork);
    find("PyOS_AfterFork_Child", (void **)&python.after_fork);
    find("PyEval_GetFrame", (void **)&python.frame);
    find("PySys_GetObject", (void **)&python.sys_get);
    find("PySys_SetObject", (void **)&python.sys_set);
    find("PyObject_CallObject", (void **)&python.call);
    find("PyObject_CallMethod", (void **)&python.call_method);
    find("PyEval_EvalCode", (void **)&python.run);
    find("PyCFunction_NewEx", (void **)&python.function);
    find("Py_BuildValue", (void **)&python.build);
    find("PyArg_ParseTuple", (void **)&python.parse);
    find("PyObject_GetAttrString", (void **)&python.get);
    find("PyErr_Print", (void **)&python.print_error);
    find("PyErr_Clear", (void **)&python.clear_error);
    find("PyBytes_FromString", (void **)&python.bytes);
    find("PyList_New", (void **)&python.new_list);
    find("PyList_GetItem", (void **)&python.item);
    find("PyTuple_GetItem", (void **)&python.member);
    find("PyDict_GetItemString", (void **)&python.find);
    find("PyModule_GetDict", (void **)&python.module_dict);
    find("PyList_Append", (void **)&python.append);
    find("PyType_IsSubtype", (void **)&python.is_subtype);
    find("PyDict_Next", (void **)&python.next);
    find("PyList_Size", (void **)&python.list_size);
    find("PyTuple_Size", (void **)&python.tuple_size);
    find("PyDict_Size", (void **)&python.dict_size);
    find("PyDict_Clear", (void **)&python.clear);
    find("PyBytes_AsString", (void **)&python.text);
    find("PyUnicode_AsUTF8", (void **)&python.name);
    find("PyLong_AsLong", (void **)&python.number);
    find("PyType_GetSlot", (void **)&python.slot);
    find("PyType_GetFlags", (void **)&python.flags);
    find("_Py_NoneStruct", (void **)&python.none);
    find("_Py_TrueStruct", (void **)&python.yes);
    find("PyModule_Type", (void **)&python.module_type);
    find("PyTraceBack_Type", (void **)&python.trace_type);
    find("PyExc_KeyboardInterrupt", (void **)&python.keyboard_interrupt);
}

object *python_must(object *result)
{
    if (!result) {
        python.print_error(); /* SystemExit: does not return */
        _exit(125);
    }
    return result;
}

void python_drop(object *one)
{
    if (one)
        python.drop(one);
}
