// Blocks of data, which arrive one after another while the page loads; readers wait for their block.

const blocks = new Map();

function block(name) {
  if (!blocks.has(name)) {
    const made = {};
    made.come = new Promise(resolve => { made.resolve = resolve; });
    blocks.set(name, made);
  }
  return blocks.get(name);
}

/** Called when a block is in the page. The block is parsed on first use. */
function arrived(script) {
  block(script.id).resolve(script);
}

/** Called at the end of the page: missing blocks resolve to null. */
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

/** Array type that can index `count` items; its maximum means "none". Must match `index_dtype` in blocks.py. */
const indexKind = count => count > 65535 ? Uint32Array : Uint16Array;

function readBlock(script) {
  if (!script) return null;
  const found = script.type === "application/json" ? JSON.parse(script.textContent) : bytes(script.textContent);
  script.remove();
  return found;
}

/** Wait for a block and return its content; null if the page does not have it. */
async function when(name) {
  const one = block(name);
  if (blocks.closed) one.resolve(null);
  const script = await one.come;
  one.value ??= readBlock(script);
  return one.value;
}
