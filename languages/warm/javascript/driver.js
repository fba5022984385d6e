// Node, booted and waiting: node --require driver.js main.js
//
// Node loads this before it looks at main.js. It waits for the program and puts right what Node has derived from its
// command line and environment; then Node goes on by itself and starts main.js as it always does, so that require.main,
// stack traces, modules, exit codes and all the rest are its own. Worker threads load this again, as they do every
// --require, and it hides from them as well.
'use strict';

const fs = require('fs');
const path = require('path');

// What most programs need and Node loads only then. Nothing here may touch the streams of the process: what 0 to 2 are
// is not known yet. The sink never finishes its first write, so that no callback is left for the program's event loop.
function warmUp() {
    const { Writable } = require('stream');
    const sink = new Writable({ decodeStrings: false, write() {} });
    // Some of them ask what process.stderr is, which would make it.
    const own = Object.getOwnPropertyDescriptor(process, 'stderr');
    Object.defineProperty(process, 'stderr', { ...own, get: () => sink });
    for (const name of ['assert', 'child_process', 'events', 'fs/promises', 'os', 'perf_hooks', 'readline', 'tty',
                        'url', 'util'])
        require(name);
    const { Console } = require('console');
    const { Socket } = require('net');
    const quiet = new Console(sink, sink);
    quiet.log(42, 'text', [1, { a: 1 }], new Map([[1, 2]]), new Error('none'));
    quiet.error('%s %d', 'text', 1);
    Object.defineProperty(process, 'stderr', own);
    return new Socket({ readable: false, writable: true, manualStart: true });
}

// The argument block: the number of arguments, the number of variables, the working directory, the arguments, …
function receive() {
    const words = fs.readFileSync('/.hotcell/program').toString().split('\0');
    return { cwd: words[2], argv: words.slice(3, 3 + Number(words[0])) };
}

// languages/javascript.toml: a Node that goes by the name alone needs an option for a module, and it is too late for
// options here.
function needsOption(entry) {
    if (!/^v(18|19|20\.([0-9]|1[0-8])|21|22\.[0-6])\./.test(process.version) || fs.existsSync('package.json'))
        return false;
    const text = fs.readFileSync(entry, 'latin1');
    return /^\s*(import\s*[a-z_$"'*{]|export\s+[a-z*{])/im.test(text) && !/require\(|module\.exports/.test(text);
}

// As if there were no such file.
function hide() {
    const isOurs = name => path.resolve(name) === __filename;
    process.execArgv.splice(process.execArgv.findIndex(isOurs) - 1, 2);
    Object.defineProperty(process, '_preload_modules', { value: process._preload_modules.filter(name => !isOurs(name)) });
    delete require.cache[__filename];
    module.parent.children.length = 0;
}

if (require('worker_threads').isMainThread) {
    const entry = path.basename(process.argv[1]);
    warmUp();
    const { cwd, argv } = receive();
    if (entry.endsWith('.js') && needsOption(entry))
        fs.openSync('/.hotcell/cold'); // the library execs the cold command
    process.chdir(cwd); // the library has: this is for Node, which remembers where it was
    if (argv[0] === '/bin/sh') { // as a shell leaves it
        process.env.PWD = cwd;
        for (const name of Object.keys(process.env))
            if (!/^[A-Za-z_][A-Za-z_0-9]*$/.test(name))
                delete process.env[name];
    }
    if (process.env.TZ)
        process.env.TZ = String(process.env.TZ); // V8 is told of a time zone that is set
    process.argv.push(...argv.slice(argv.indexOf(entry) + 1));
}
hide();
