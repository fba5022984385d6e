// A Node that keeps its variables: the program of contexts (docs/SANDBOXES.md, languages/README.md), with its door as fd 3.
//
// Code is evaluated by V8's own REPL mode, through an inspector session to this very thread: const, let and class stay and may be
// declared again, and await works at top level. It is called from within a vm script that breaks on SIGINT, so that a loop can be left.
// Node cannot receive fds: code and input come in the frame, and output goes to the process's own 1 and 2, at once.
//
// What always holds: what a call leaves behind (timers, promises, streams) writes to nowhere, and not into the output of the next:
// every call is an asynchronous context of its own.
'use strict';

const { AsyncLocalStorage } = require('async_hooks');
const fs = require('fs');
const inspector = require('inspector');
const { createRequire, builtinModules } = require('module');
const net = require('net');
const os = require('os');
const path = require('path');
const { pathToFileURL } = require('url');
const util = require('util');
const vm = require('vm');

const FRAME_LIMIT = 64 << 20, DISPLAY_LIMIT = 32 << 20;
const RUN = Symbol.for('hotcell.run');
const calls = new AsyncLocalStorage();
const inside = new vm.Script("globalThis[Symbol.for('hotcell.run')]()"); // the one way to a SIGINT that stops a loop
const session = new inspector.Session();
const exit = process.exit.bind(process);
let current = null; // the call that is carried out
let number = 0;
let received; // the object that V8 speaks of

// ---- the door ----

const door = new net.Socket({ fd: 3, readable: true, writable: true });
// For others' JSON: no half of a pair of surrogates, and no NUL.
const clean = (_, value) => typeof value === 'string' ? Buffer.from(value).toString().replaceAll('\0', '\ufffd') : value;

// While code is evaluated that an interrupt may leave at any point, frames wait: each is sent whole.
const waiting = { frames: [], size: 0, left: 0, evaluating: false };

function send(frame) {
    const data = Buffer.from(JSON.stringify(frame, clean));
    const head = Buffer.alloc(4);
    head.writeUInt32LE(data.length);
    const whole = Buffer.concat([head, data]);
    if (!waiting.evaluating) {
        door.write(whole);
    } else if (waiting.size + whole.length > FRAME_LIMIT) {
        waiting.left++;
    } else {
        waiting.size += whole.length;
        waiting.frames.push(whole);
    }
}

function sendWaiting() {
    waiting.evaluating = false;
    waiting.frames.splice(0).forEach(frame => door.write(frame));
    if (waiting.left > 0)
        show(`(left out: ${waiting.left} more)`);
    waiting.size = waiting.left = 0;
}

function receive() {
    let parts = [], had = 0, wanted = 4;
    door.on('data', data => {
        parts.push(data);
        had += data.length;
        while (had >= wanted) {
            const all = Buffer.concat(parts);
            const length = all.readUInt32LE(0);
            if (length > FRAME_LIMIT)
                exit(125);
            wanted = 4 + length;
            if (had >= wanted)
                begin(all.subarray(4, wanted));
            parts = [had >= wanted ? all.subarray(wanted) : all];
            if (had < wanted)
                return;
            had -= wanted;
            wanted = 4;
        }
    });
    door.on('close', () => exit(0));
    door.on('end', () => exit(0));
    door.on('error', () => exit(0));
}

// ---- whose output it is ----

const isLeftOver = () => current === null || (calls.getStore() ?? current) !== current;

// An interrupt may come at any point, and a stream that is left in the middle of a write never writes again: so what is written does not
// go through the stream. What is left over is done with at once.
function ownOutput(stream, fd) {
    const moment = new Int32Array(new SharedArrayBuffer(4));
    stream.write = (chunk, encoding, callback) => {
        const data = typeof chunk === 'string' ? Buffer.from(chunk, typeof encoding === 'string' ? encoding : 'utf8') : chunk;
        if (!(data instanceof Uint8Array))
            throw new TypeError('The "chunk" argument must be of type string or an instance of Buffer or Uint8Array');
        for (let at = isLeftOver() ? data.length : 0; at < data.length;)
            try {
                at += fs.writeSync(fd, data, at);
            } catch (error) {
                if (error.code !== 'EAGAIN')
                    throw error;
                Atomics.wait(moment, 0, 0, 1); // the pipe is full
            }
        const then = typeof encoding === 'function' ? encoding : callback;
        if (then)
            process.nextTick(then);
        return true;
    };
    stream.end = stream.destroy = stream.destroySoon = () => stream;
}

// The call's input becomes fd 0: the lowest that is free is the one that is opened.
function placeInput(text) {
    let from = '/dev/null';
    if (text !== '') {
        from = path.join(os.tmpdir(), `.stdin-${process.pid}`);
        fs.writeFileSync(from, text, { mode: 0o600 });
    }
    try {
        fs.closeSync(0);
    } catch {
        // The code has closed it.
    }
    fs.openSync(from);
    if (text !== '')
        fs.unlinkSync(from);
    let stream;
    Object.defineProperty(process, 'stdin', {
        configurable: true,
        enumerable: true,
        get: () => stream ??= Object.assign(fs.createReadStream(null, { fd: 0, autoClose: false }), { fd: 0 }),
    });
}

// ---- what is shown ----

function formsOf(thing) {
    const show = thing === null || thing === undefined ? undefined : thing[Symbol.for('Jupyter.display')];
    const forms = typeof show === 'function' ? { ...show.call(thing) } : {};
    forms['text/plain'] ??= util.inspect(thing);
    return forms;
}

function textOf(data) {
    if (data instanceof Uint8Array)
        return Buffer.from(data).toString('base64');
    return typeof data === 'string' ? data : String(JSON.stringify(data));
}

function show(thing, value = false) {
    if (isLeftOver())
        return;
    let entries = Object.entries(formsOf(thing)).map(([type, data]) => ({ type, data: textOf(data) }));
    const size = entries.reduce((sum, entry) => sum + Buffer.byteLength(entry.data), 0);
    if (size > DISPLAY_LIMIT)
        entries = [{ type: 'text/plain', data: `(left out: ${size >> 20} MiB to show, of at most ${DISPLAY_LIMIT >> 20} MiB)` }];
    send({ id: current.id, event: 'display', value, of: ++current.displays, entries });
}

// ---- errors ----

// The frames of the code, without ours, which begin where it was called.
function traceOf(error) {
    const lines = String(error.stack ?? error).split('\n');
    const end = lines.findIndex(line => /^ +at .*(node:inspector|node:vm)/.test(line) || line.includes(__filename));
    return (end < 0 ? lines : lines.slice(0, end)).join('\n') + '\n';
}

function describe(error, call, details) {
    const isError = util.types.isNativeError(error) || error instanceof Error;
    let trace, line = null;
    try {
        trace = isError ? traceOf(error) : `Uncaught ${util.inspect(error)}\n`;
        const found = new RegExp(`${call.name}:(\\d+)`).exec(trace);
        if (found)
            line = Number(found[1]);
        if (line === null && details && error instanceof SyntaxError) {
            const lines = call.code.split('\n');
            line = Math.min(details.lineNumber + 1, lines.length);
            trace = `${call.name}:${line}\n${lines[line - 1]}\n\n${trace}`;
        }
        return { type: isError ? String(error.name) : typeof error, message: isError ? String(error.message) : util.inspect(error), traceback: trace, line };
    } catch {
        return { type: 'Error', message: '(its text cannot be had)', traceback: '', line };
    }
}

class Exit extends Error {
    constructor(code) {
        super(`process.exit(${code ?? ''}) was called: the context goes on`);
        this.name = 'Exit';
        Error.captureStackTrace(this, process.exit);
    }
}

// ---- a call ----

// The object itself, of which V8 gives a description.
function resolve(remote) {
    const argument = 'objectId' in remote ? { objectId: remote.objectId }
        : 'unserializableValue' in remote ? { unserializableValue: remote.unserializableValue } : { value: remote.value };
    received = undefined;
    session.post('Runtime.callFunctionOn', {
        objectId: resolve.taker, functionDeclaration: 'function(thing) { this(thing) }', arguments: [argument],
    });
    return received;
}

// V8's REPL mode knows no modules: dynamic imports become a function of ours, and static ones, at the start of a line, dynamic ones.
const translateDynamic = code => code.replace(/\bimport\s*\(/g, 'importModule(');

function translateStatic(code) {
    const names = list => list.replace(/\bas\b/g, ':').replace(/\bdefault\s*:/g, 'default:');
    const from = /^import\s+(?:([\w$]+)\s*,?\s*)?(?:\*\s*as\s+([\w$]+)\s+|(\{[^}]*\})\s*)?from\s*(['"][^'"\n]+['"])/gm;
    return code
        .replace(from, (all, main, space, some, source) => {
            const lines = '\n'.repeat(all.split('\n').length - 1);
            const parts = [main && `{default: ${main}}`, space, some && names(some.replaceAll('\n', ' '))].filter(Boolean);
            return parts.map(part => `const ${part} = await importModule(${source})`).join('; ') + ';' + lines;
        })
        .replace(/^import\s*(['"][^'"\n]+['"])/gm, 'await importModule($1);');
}

// What comes of it is told when no interrupt can leave it halfway any more.
function evaluate(call, code, then) {
    let outcome = null;
    const take = answer => {
        if (waiting.evaluating)
            outcome = answer;
        else
            then(answer);
    };
    const run = () => delete globalThis[RUN] && session.post('Runtime.evaluate', {
        expression: `${code}\n//# sourceURL=${call.name}`, replMode: true, awaitPromise: true, objectGroup: 'call',
    }, (wrong, answer) => {
        if (wrong)
            take({ error: new Error(wrong.message) });
        else if (answer.exceptionDetails)
            take({ error: resolve(answer.exceptionDetails.exception), details: answer.exceptionDetails });
        else
            take({ value: resolve(answer.result) });
    });
    Object.defineProperty(globalThis, RUN, { value: run, configurable: true });
    try {
        waiting.evaluating = true;
        inside.runInThisContext({ breakOnSigint: true });
    } catch (error) {
        outcome = error.code === 'ERR_SCRIPT_EXECUTION_INTERRUPTED' ? { interrupted: true } : { error };
    }
    sendWaiting();
    if (outcome)
        then(outcome);
}

function finish(call, outcome) {
    if (current !== call)
        return; // it was interrupted, and has an answer
    const answer = { id: call.id, event: 'done', status: 'completed', exit_code: null, error: null };
    if ('value' in outcome && outcome.value !== undefined) {
        try {
            globalThis._ = outcome.value;
            show(outcome.value, true);
        } catch (error) {
            outcome = { error };
        }
    }
    if (outcome.interrupted) {
        answer.status = 'interrupted';
        answer.error = { type: 'Interrupted', message: 'interrupted', traceback: '', line: null };
    } else if ('error' in outcome) {
        answer.status = 'error';
        answer.error = describe(outcome.error, call, outcome.details);
    }
    session.post('Runtime.releaseObjectGroup', { objectGroup: 'call' });
    current = null;
    send(answer);
}

// A promise that is the value of the last expression, such as that of main(), is waited for.
function settle(call, outcome) {
    if (current === call && 'value' in outcome && util.types.isPromise(outcome.value))
        outcome.value.then(value => finish(call, { value }), error => finish(call, { error }));
    else
        finish(call, outcome);
}

function begin(data) {
    let frame;
    try {
        frame = JSON.parse(data.toString());
    } catch {
        exit(125);
    }
    if (frame?.op !== 'execute' || typeof frame.code !== 'string' || current !== null)
        exit(125);
    const call = current = { id: frame.id, name: `<cell-${++number}>`, code: frame.code, displays: 0 };
    calls.run(call, () => {
        try {
            placeInput(frame.stdin ?? '');
        } catch (error) {
            finish(call, { error });
            return;
        }
        const code = translateDynamic(frame.code);
        evaluate(call, code, outcome => {
            const { error } = outcome;
            if (error instanceof SyntaxError && /import statement outside a module/.test(error.message) && !error.stack.includes(call.name))
                evaluate(call, translateStatic(code), again => settle(call, again));
            else
                settle(call, outcome);
        });
    });
}

// ---- at the start ----

function hide(name, value) {
    Object.defineProperty(globalThis, name, { value, configurable: true, writable: true, enumerable: false });
}

function importModule(require, name) {
    if (/^\.{0,2}\//.test(name))
        return import(pathToFileURL(path.resolve(name)).href);
    return import(/^(node|file|data):/.test(name) || builtinModules.includes(name) ? name : pathToFileURL(require.resolve(name)).href);
}

function main() {
    const require = createRequire(path.join(process.cwd(), 'cell.js'));
    const module = { exports: {}, children: [], filename: null, loaded: false, paths: [] };
    for (const [name, value] of Object.entries({ require, module, exports: module.exports, display: (...things) => things.forEach(thing => show(thing)),
        importModule: name => importModule(require, String(name)), _: undefined }))
        hide(name, value);
    for (const name of builtinModules.filter(name => !/^_|\//.test(name) && !(name in globalThis)))
        Object.defineProperty(globalThis, name, {
            configurable: true, enumerable: false, get: () => require(name), set: value => hide(name, value),
        });
    session.connect();
    hide('taker', thing => { received = thing; });
    session.post('Runtime.evaluate', { expression: 'taker' }, (_, answer) => { resolve.taker = answer.result.objectId; });
    delete globalThis.taker;
    process.argv.length = 1;
    process.exit = code => { throw new Exit(code); };
    process.on('SIGINT', () => { if (current) finish(current, { interrupted: true }); });
    for (const event of ['uncaughtException', 'unhandledRejection'])
        process.on(event, error => { if (!isLeftOver()) process.stderr.write(`Uncaught ${error instanceof Error ? traceOf(error) : util.inspect(error) + '\n'}`); });
    ownOutput(process.stdout, 1);
    ownOutput(process.stderr, 2);
    receive();
    send({ event: 'ready', version: process.versions.node, fds: false });
}
main();
