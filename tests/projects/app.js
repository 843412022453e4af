// Tools that try what their class may forbid, for tests of the host: the same acts under two classes.
import { digest, replace } from 'deed:workspace/files@0.1.0';

const TRY = {
  type: 'object',
  properties: {
    act: { enum: ['write', 'reach', 'look', 'note'], description: 'What to try.' },
    address: { type: 'string', description: 'Whom to reach: `IP:PORT`.' },
  },
  required: ['act'],
  additionalProperties: false,
};
const CLASSES = { try_pure: 'pure', try_idempotent: 'idempotent' };

const put = (file, text) => replace(file, new TextEncoder().encode(`${text}\n`), { tag: 'whatever' });

const hex = () => [...crypto.getRandomValues(new Uint8Array(8))].map((byte) => byte.toString(16)).join('');

// The clock and randomness, twice each. A clock of whole milliseconds: its end is filled up.
const look = () => [`${Date.now()}000000`, hex(), `${Date.now()}000000`, hex()].join(' ');

const ACTS = {
  write: () => put('tried.txt', 'tried') && 'written',
  reach: async (address) => `reached ${(await fetch(`http://${address}/`)).status}`,
  look,
  // No idempotent tool: a second attempt shows in a second file, with what it saw.
  note: () => {
    const seen = look();
    put(digest('noted.txt') === undefined ? 'noted.txt' : 'again.txt', seen);
    return seen;
  },
};

export const tools = {
  describe() {
    return Object.entries(CLASSES).map(([name, effect]) => ({
      name,
      title: 'Try',
      description: 'Try it.',
      inputSchema: JSON.stringify(TRY),
      outputSchema: undefined,
      effect,
      traits: {},
      timeoutMs: undefined,
    }));
  },

  refine(name, args) {
    throw { kind: 'not-found', message: `\`${name}\` has one class`, effect: 'not-applied' };
  },

  async invoke(context, name, args) {
    const { act, address } = JSON.parse(args);
    try {
      return { structured: undefined, content: [{ tag: 'text', val: await ACTS[act](address) }], landedBefore: false };
    } catch (error) {
      const message = `the tool saw ${error.payload ? JSON.stringify(error.payload) : error}`;
      throw { kind: 'denied', message, effect: 'not-applied' };
    }
  },
};
