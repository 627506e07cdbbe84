// SPDX-FileCopyrightText: The PureLB for Ansible authors
// SPDX-License-Identifier: Apache-2.0
"use strict";
const words = document.querySelector("#words");
const wrong = document.querySelector("#wrong");
const count = document.querySelector("#count");
const rows = [...document.querySelectorAll("tbody tr")].map((row) => [row, row.textContent.toLowerCase()]);

function filter() {
  const asked = words.value.toLowerCase().split(/\s+/).filter(Boolean);
  let shown = 0;
  for (const [row, text] of rows) {
    row.hidden = !asked.every((word) => text.includes(word)) || (wrong.checked && row.dataset.mark === "ok");
    shown += row.hidden ? 0 : 1;
  }
  const isAsked = asked.length > 0 || wrong.checked;
  count.textContent = isAsked ? `${shown} of ${rows.length} rows` : "";
  if (isAsked) open();
}

function open() {
  for (const part of document.querySelectorAll("details")) part.open = true;
}

words.addEventListener("input", filter);
wrong.addEventListener("input", filter);
addEventListener("beforeprint", open);
document.querySelector(".tools").hidden = false;
