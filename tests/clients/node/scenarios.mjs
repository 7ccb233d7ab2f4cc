// What every client is asked for: the same as in ../python/scenarios.py, told in the same form. Knows no client.

export const MODEL = "toy";
export const SCHEMA = {
  type: "object",
  properties: { x: { type: "integer" }, why: { type: "string" } },
  required: ["x", "why"],
  additionalProperties: false,
};
export const PARAMETERS = { type: "object", properties: { at: { type: "string" } }, required: ["at"] };
export const TOOL = { type: "function", function: { name: "dir", description: "d", parameters: PARAMETERS } };
export const URL = process.argv[2];
const TOO_LONG = "x".repeat(300);

// `clients`: by name, each with stream(say, tools), whole(say, tools), typed(say) and leave(say).
export async function main(clients) {
  const told = {};
  for (const [name, client] of Object.entries(clients)) told[name] = await toldBy(client);
  console.log(JSON.stringify(told));
}

async function toldBy(client) {
  const told = {};
  for (const what of ["text", "call"])
    for (const when of ["never", "first", "middle", "fourth"])
      for (const how of ["stream", "whole"])
        told[`${how} ${what} ${when}`] = await attempt(() => client[how](`${what} ${when}`, what === "call"));
  told.typed = await attempt(() => client.typed("json fourth"));
  for (const how of ["stream", "whole"]) {
    told[`${how} refused`] = await attempt(() => client[how](TOO_LONG, false));
    told[`${how} died`] = await attempt(() => client[how]("text dies", false));
  }
  told.left = await attempt(() => client.leave("text stays"));
  return told;
}

async function attempt(ask) {
  try {
    return await ask();
  } catch (error) {
    return { error: textOf(error), status: error.status ?? error.statusCode ?? null };
  }
}

function textOf(error) {
  return error instanceof Error ? error.message : (error.message ?? JSON.stringify(error));
}

export const chat = (say) => ({ model: MODEL, messages: [{ role: "user", content: say }] });
