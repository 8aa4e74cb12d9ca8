// Data that comes with the page, block after block: who needs one waits for it.

const blocks = new Map();

function block(name) {
  if (!blocks.has(name)) {
    const made = {};
    made.come = new Promise(resolve => { made.resolve = resolve; });
    blocks.set(name, made);
  }
  return blocks.get(name);
}

/** A block stands in the page. It is read when somebody asks for it. */
function arrived(script) {
  block(script.id).resolve(script);
}

/** No block comes any more: those that were never there are null. */
function complete() {
  for (const one of blocks.values()) one.resolve(null);
  blocks.closed = true;
  document.dispatchEvent(new Event("complete"));
}

function bytes(text) {
  const letters = atob(text), found = new Uint8Array(letters.length);
  for (let i = 0; i < letters.length; i++) found[i] = letters.charCodeAt(i);
  return found.buffer;
}

/** The kind of array that numbers one of so many, and nobody. */
const indexKind = many => many > 65535 ? Uint32Array : Uint16Array;

function readBlock(script) {
  if (!script) return null;
  const found = script.type === "application/json" ? JSON.parse(script.textContent) : bytes(script.textContent);
  script.remove();
  return found;
}

/** What a block says, once it is there; null where it never comes. */
async function when(name) {
  const one = block(name);
  if (blocks.closed) one.resolve(null);
  const script = await one.come;
  one.value ??= readBlock(script);
  return one.value;
}
