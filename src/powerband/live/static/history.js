// Keeps the list of runs as it is on disk, while somebody looks at it; runs picked for a comparison stay picked.

import { localTimes } from "./format.js";

const EVERY_MS = 4000; // arbitrary: a run's line changes every few seconds at most
const count = document.getElementById("count");
const content = document.getElementById("content");
let told = content.innerHTML;
localTimes(content);

async function refresh() {
  if (document.hidden) return;
  const answer = await fetch(location.href).catch(() => null);
  if (!answer?.ok) return;
  const page = new DOMParser().parseFromString(await answer.text(), "text/html");
  const there = page.getElementById("content");
  if (!there || there.innerHTML === told) return;
  if (content.contains(document.activeElement)) return; // somebody is using the list: the next update will do
  told = there.innerHTML;
  const picked = [...content.querySelectorAll("input:checked")];
  count.replaceChildren(...page.getElementById("count").childNodes);
  content.replaceChildren(...there.childNodes);
  localTimes(content);
  if (picked.length < 2) return; // with a single run there was nothing to pick
  for (const input of content.querySelectorAll("input")) {
    if (picked.some(({ name, value }) => name === input.name && value === input.value)) input.checked = true;
  }
}

setInterval(refresh, EVERY_MS);
document.documentElement.dataset.ready = "yes";
