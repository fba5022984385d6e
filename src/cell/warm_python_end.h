/*
 * The end of a program of a zygote. An interpreter that ends clears every module and every interned string. In a child
 * this copies each page of the zygote in order to throw it away, which takes longer than most programs run. Most
 * programs leave nothing that could notice: no open file, no generator, no object with a finalizer. If that is so, the
 * process ends once the exit handlers are through; or, if only the interpreter knows the exit code, it is spared the
 * modules. Otherwise it goes on to its own end, as in a cold start.
 *
 * What always holds: no code of the program's runs here. Whatever would have to be asked of an object of its own is
 * taken for something that could notice.
 */
#ifndef HC_CELL_WARM_PYTHON_END_H
#define HC_CELL_WARM_PYTHON_END_H

#include "cell/warm_python_api.h"

/* The function to register as the first exit handler, which is the last that is called. */
object *python_end_handler(void);
/* In the zygote, before it freezes: what the driver tells of it, a tuple that is kept until the end. */
void python_end_prepare(object *told, object *facts);
/* In a child: once there is nothing but the program to come. `made`: of which its streams are, a list; or NULL. */
void python_end_begin(object *made);

#endif
