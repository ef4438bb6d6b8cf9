// How keys move on a map of buttons, a table of trials, in the report and on the live pages.

/** Returns the button to which an arrow, Home or End leads from another; undefined if there is none, or for other keys. */
export function keyTarget(button, event) {
  const { key } = event;
  if (!["ArrowRight", "ArrowLeft", "ArrowDown", "ArrowUp", "Home", "End"].includes(key)) return undefined;
  event.preventDefault();
  const row = button.closest("tr");
  const inRow = [...row.querySelectorAll("button")];
  const place = inRow.indexOf(button);
  if (key === "ArrowRight" || key === "ArrowLeft") return inRow[place + (key === "ArrowRight" ? 1 : -1)];
  const all = [...row.parentElement.querySelectorAll("button")];
  if (key === "Home") return all[0];
  if (key === "End") return all.at(-1);
  let next = row;
  do next = key === "ArrowDown" ? next.nextElementSibling : next.previousElementSibling;
  while (next && !next.querySelector("button"));
  const there = next ? [...next.querySelectorAll("button")] : [];
  return there[Math.min(place, there.length - 1)];
}
