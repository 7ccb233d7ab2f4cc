// Anthropic's client for Node.

import Anthropic from "@anthropic-ai/sdk";
import { PARAMETERS, SCHEMA, URL, main } from "./scenarios.mjs";

const sdk = new Anthropic({ apiKey: "none", baseURL: URL, maxRetries: 0, timeout: 30_000 });
const ENDS = { end_turn: "stop", tool_use: "tool_calls" };

function asked(say, tools) {
  const tool = { name: "dir", description: "d", input_schema: PARAMETERS };
  const body = { model: "claude-any", max_tokens: 200, messages: [{ role: "user", content: say }] };
  return { ...body, ...(tools && { tools: [tool] }) };
}

function made(message) {
  const of = (type) => message.content.filter((block) => block.type === type);
  return {
    text: of("text").map((block) => block.text).join(""),
    calls: of("tool_use").map((block) => ({ name: block.name, arguments: block.input })),
    thought: of("thinking").map((block) => block.thinking).join("") || null,
    end: ENDS[message.stop_reason],
  };
}

const messages = {
  stream: async (say, tools) => made(await sdk.messages.stream(asked(say, tools)).finalMessage()),
  whole: async (say, tools) => made(await sdk.messages.create(asked(say, tools))),
  typed: async (say) => {
    const output_config = { format: { type: "json_schema", schema: SCHEMA } };
    return JSON.parse(made(await sdk.messages.create({ ...asked(say), output_config })).text);
  },
  leave: async (say) => {
    for await (const event of await sdk.messages.create({ ...asked(say), stream: true }))
      if (event.type === "content_block_delta") return event.delta.text;
  },
};

await main({ "anthropic node": messages });
