// Keeps the list of runs as it is on disk, while somebody looks at it; what was picked for a comparison stays picked.

const EVERY_MS = 4000;
const body = document.getElementById("runs");

async function refresh() {
  if (document.hidden || !body) return;
  const answer = await fetch(location.href).catch(() => null);
  if (!answer?.ok) return;
  const there = new DOMParser().parseFromString(await answer.text(), "text/html").getElementById("runs");
  if (!there || there.innerHTML === told) return;
  told = there.innerHTML;
  const picked = [...body.querySelectorAll("input:checked")].map((input) => [input.name, input.value]);
  const focused = document.activeElement?.closest?.("tr")?.dataset.run;
  if (focused) return; // not under somebody's fingers: the next time will do
  body.replaceChildren(...there.children);
  for (const input of body.querySelectorAll("input")) input.checked = picked.some(([name, value]) => name === input.name && value === input.value);
}

let told = body?.innerHTML;
setInterval(refresh, EVERY_MS);
document.documentElement.dataset.ready = "yes";
