// The page: theme, table of contents, and drawing of a section when its data has arrived and it comes near the window.

/** Call `act` once when an element comes near the window. */
function whenSeen(element, act) {
  const watch = new IntersectionObserver(seen => {
    if (!seen.some(one => one.isIntersecting)) return;
    watch.disconnect();
    act();
  }, { rootMargin: "600px" });
  watch.observe(element);
}

const whenIdle = window.requestIdleCallback ?? (act => setTimeout(act, 200));

/** Draw a section, if the page has it, when it comes near the window or the page is idle; `ready` waits for its data. */
function fillSection(name, ready, draw) {
  const holder = document.querySelector(`#${name} > .fill`);
  let begun = !holder;
  const fill = async () => {
    if (begun) return;
    begun = true;
    await ready();
    draw(holder);
  };
  if (holder) whenSeen(holder, fill);
  document.addEventListener("complete", () => whenIdle(fill));
}

const readFacts = async () => { facts ??= await when("facts"); };

async function readMore() {
  await readFacts();
  sheets = await when("sheets");
  more ??= await when("more");
}

/** Wait for class names and captions as well, which galleries show. */
async function readNames() {
  await readMore();
  await Promise.all(facts.pools.map((_, pool) => readPool(pool)));
}

function setTheme(theme) {
  document.documentElement.dataset.theme = theme;
  document.dispatchEvent(new Event("theme"));
}

function followTheme() {
  const dark = matchMedia("(prefers-color-scheme: dark)"), { dataset } = document.documentElement;
  document.getElementById("theme").addEventListener("click", () => setTheme(dataset.theme === "dark" ? "light" : "dark"));
  dark.addEventListener("change", () => setTheme(dark.matches ? "dark" : "light"));
  let before = dataset.theme;
  addEventListener("beforeprint", () => {
    before = dataset.theme;
    setTheme("light");
    document.querySelectorAll(".folded").forEach(one => { one.open = true; });
  });
  addEventListener("afterprint", () => setTheme(before));
}

/** Mark the visible section in the table of contents. */
function followReading() {
  const links = new Map([...document.querySelectorAll("nav a")].map(link => [link.hash.slice(1), link]));
  const watch = new IntersectionObserver(seen => {
    for (const { target, isIntersecting } of seen) {
      if (isIntersecting) links.get(target.id).setAttribute("aria-current", "true");
      else links.get(target.id).removeAttribute("aria-current");
    }
  }, { rootMargin: "-20% 0px -75% 0px" });
  document.querySelectorAll("main > section").forEach(section => watch.observe(section));
}

followTheme();
followReading();
addEventListener("scroll", hideTip, { passive: true });
