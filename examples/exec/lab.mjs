#!/usr/bin/env node
// The same as lab.sh for Node: the request is JSON on stdin, the answer is JSON on stdout, and so is an error.
import { execFileSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";

const LABCTL = fileURLToPath(new URL("labctl", import.meta.url));
const ERRORS = { 4: "quota_exceeded", 5: "already_exists", 6: "unauthenticated", 7: "invalid_argument", 8: "unavailable" };
const STATES = { booting: "pending", running: "running" };

const labctl = (...args) => execFileSync(LABCTL, args, { encoding: "utf8", stdio: ["ignore", "pipe", "pipe"] }).trimEnd();

const machine = (machineID, name, state, tags) => ({
  machineID, name, providerID: `lab://${machineID}`, state: STATES[state], tags,
});

function answer({ operation, machine: wanted }) {
  if (operation === "create") {
    const { name, tags, settings } = wanted;
    const id = labctl("create", "--name", name, "--size", settings.size ?? "small", "--tags", JSON.stringify(tags),
      "--user-data", process.env.CLOUDGRAFT_USER_DATA_FILE); // what is in wanted.userData, as a file
    return { machine: machine(id, name, "booting", tags) };
  }
  if (operation === "delete") {
    try {
      labctl("delete", wanted.machineID);
    } catch (error) {
      if (error.status !== 3) throw error; // it is gone already
    }
    return {};
  }
  const rows = labctl("list").split("\n").filter(Boolean).map((line) => line.split("\t"));
  return { machines: rows.map(([id, name, state, tags]) => machine(id, name, state, JSON.parse(tags))) };
}

try {
  console.log(JSON.stringify(answer(JSON.parse(readFileSync(0, "utf8")))));
} catch (error) {
  const code = ERRORS[error.status]; // any other: it may have been done, or not, and cloudgraft will look
  if (code) console.log(JSON.stringify({ error: { code, message: error.stderr.trim() } }));
  console.error(error.stderr ?? error);
  process.exitCode = 1;
}
