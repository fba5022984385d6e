// An official client of the Model Context Protocol, driven by lines of JSON: each line in is one step, each line out is what came of it.
//
//     node driver.mjs FOLDER v1|v2 http URL [KEY]
//     node driver.mjs FOLDER v1|v2 stdio COMMAND...
//
// FOLDER has the node_modules. v1 is @modelcontextprotocol/sdk, v2 is @modelcontextprotocol/client. A step is {"do": "call", "name": …}; steps that
// name themselves ({"start": "a", …}) run beside the others, and {"do": "await", "of": "a"} gives what came of them.
import { createRequire } from 'node:module';
import { createInterface } from 'node:readline';
import { pathToFileURL } from 'node:url';

const [folder, generation, transportName, ...rest] = process.argv.slice(2);
const require = createRequire(folder + '/package.json');
const load = async (name) => import(pathToFileURL(require.resolve(name)));

async function connect() {
  const v1 = generation === 'v1';
  const { Client } = await load(v1 ? '@modelcontextprotocol/sdk/client/index.js' : '@modelcontextprotocol/client');
  const client = new Client({ name: 'hotcell-tests', version: '1' }, v1 ? {} : { versionNegotiation: { mode: 'auto' } });
  let transport;
  if (transportName === 'http') {
    const { StreamableHTTPClientTransport } = await load(v1 ? '@modelcontextprotocol/sdk/client/streamableHttp.js' : '@modelcontextprotocol/client');
    const headers = rest[1] ? { Authorization: `Bearer ${rest[1]}` } : {};
    transport = new StreamableHTTPClientTransport(new URL(rest[0]), { requestInit: { headers } });
  } else {
    const { StdioClientTransport } = await load(v1 ? '@modelcontextprotocol/sdk/client/stdio.js' : '@modelcontextprotocol/client/stdio');
    transport = new StdioClientTransport({ command: rest[0], args: rest.slice(1), stderr: 'inherit', env: process.env });
  }
  await client.connect(transport);
  return { client, transport };
}

const { client, transport } = await connect();

const steps = {
  about: () => ({ server: client.getServerVersion(), capabilities: client.getServerCapabilities(), instructions: client.getInstructions(),
                  version: transport.protocolVersion ?? client.getNegotiatedProtocolVersion?.(), session: transport.sessionId, pid: transport.pid }),
  tools: async () => (await client.listTools()).tools,
  ping: () => client.ping(),
  resources: async (step) => client.listResources(step.cursor ? { cursor: step.cursor } : undefined),
  templates: async () => (await client.listResourceTemplates()).resourceTemplates,
  read: async (step) => (await client.readResource({ uri: step.uri })).contents,
  call: async (step) => {
    const progress = [];
    const abort = new AbortController();
    const options = { signal: abort.signal, timeout: step.timeout ?? 60000 };
    if (step.progress) options.onprogress = (what) => { progress.push(what); if (step.cancel_at && progress.length >= step.cancel_at) abort.abort('enough'); };
    if (step.cancel_after) setTimeout(() => abort.abort('enough'), step.cancel_after);
    const params = { name: step.name, arguments: step.arguments ?? {} };
    const result = generation === 'v1' ? await client.callTool(params, undefined, options) : await client.callTool(params, options);
    return { ...result, progress };
  },
};

async function perform(step) {
  try {
    return { ok: (await steps[step.do](step)) ?? null };
  } catch (error) {
    return { error: String(error?.message ?? error), code: error?.code ?? null, name: error?.name };
  }
}

const beside = new Map();
for await (const line of createInterface({ input: process.stdin })) {
  const step = JSON.parse(line);
  let outcome;
  if (step.do === 'await') outcome = await beside.get(step.of);
  else if (step.start) { beside.set(step.start, perform(step)); outcome = { ok: null }; }
  else outcome = await perform(step);
  process.stdout.write(JSON.stringify(outcome) + '\n');
}
if (transport.terminateSession) await transport.terminateSession().catch(() => {});
await client.close();
