// Requests. Decisions are sent one after another, in the order of the keys; a server that does not respond is asked again.

export const byId = (id) => document.getElementById(id);

export function say(text, wrong) {
  byId("said").textContent = text;
  byId("said").classList.toggle("wrong", Boolean(wrong));
}

class Unreachable extends Error {}

// A text as part of an address. Names may have bytes that are not UTF-8: the server sends byte FF as the lone surrogate \udcff.
export const encoded = (text) => String(text).split(/([\udc80-\udcff])/u)
  .map((part, i) => i % 2 ? "%" + (part.charCodeAt(0) - 0xdc00).toString(16) : encodeURIComponent(part)).join("");

export async function ask(address, query, post) {
  const url = address + (query ? "?" + Object.entries(query).map(([name, text]) => `${name}=${encoded(text)}`).join("&") : "");
  const asked = post === undefined ? {} : { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(post) };
  let answer;
  try {
    answer = await fetch(url, asked);
  } catch {
    throw new Unreachable("The server does not respond. Start it again with the same token, or reload the new address.");
  }
  const told = (answer.headers.get("content-type") || "").includes("json") ? await answer.json() : { error: await answer.text() };
  if (!answer.ok) throw new Error(told.error || `The server responded with status ${answer.status}.`);
  return told;
}

let tail = Promise.resolve();
let waiting = 0;

// Resolves when everything that was sent before is answered.
export const settled = () => tail;

async function insist(address, query, post) {
  for (;;) {
    try {
      return await ask(address, query, post);
    } catch (error) {
      if (!(error instanceof Unreachable)) throw error;
      say(`Not saved yet: ${waiting}. The server does not respond; the page tries again.`, true);
      await new Promise((done) => { setTimeout(done, 700); });
    }
  }
}

export function send(address, query, post) {
  waiting += 1;
  const work = tail.then(() => insist(address, query, post)).finally(() => { waiting -= 1; });
  tail = work.catch(() => undefined);
  return work;
}

addEventListener("beforeunload", (event) => { if (waiting) event.preventDefault(); });
