// LangChain's client of OpenAI's API, for Node.

import { ChatOpenAI } from "@langchain/openai";
import { MODEL, SCHEMA, TOOL, URL, main } from "./scenarios.mjs";

const model = new ChatOpenAI({
  model: MODEL,
  apiKey: "none",
  maxRetries: 0,
  timeout: 30_000,
  configuration: { baseURL: `${URL}/v1` },
});
const asked = (tools) => (tools ? model.bindTools([TOOL]) : model);

const made = (message) => ({
  text: message.content,
  calls: message.tool_calls.map((call) => ({ name: call.name, arguments: call.args })),
});

const chats = {
  stream: async (say, tools) => {
    let whole;
    for await (const chunk of await asked(tools).stream(say)) whole = whole ? whole.concat(chunk) : chunk;
    return made(whole);
  },
  whole: async (say, tools) => made(await asked(tools).invoke(say)),
  typed: async (say) => model.withStructuredOutput(SCHEMA, { name: "n", method: "jsonSchema" }).invoke(say),
  leave: async (say) => {
    const leaving = new AbortController();
    for await (const chunk of await model.stream(say, { signal: leaving.signal }))
      if (chunk.content) {
        leaving.abort();
        return chunk.content;
      }
  },
};

await main({ "langchain node": chats });
