// Vercel's AI SDK, by its providers for servers like OpenAI's and for Anthropic's API.

import { createAnthropic } from "@ai-sdk/anthropic";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { Output, generateText, jsonSchema, streamText, tool } from "ai";
import { MODEL, PARAMETERS, SCHEMA, URL, main } from "./scenarios.mjs";

const ENDS = { "tool-calls": "tool_calls" };
const dir = tool({ description: "d", inputSchema: jsonSchema(PARAMETERS) });

const clientOf = (model) => {
  const least = { model, maxRetries: 0, maxOutputTokens: 200 };
  const asked = (say, tools) => ({ ...least, prompt: say, ...(tools && { tools: { dir } }) });
  return {
    stream: async (say, tools) => {
      let failure;
      const result = streamText({ ...asked(say, tools), onError: ({ error }) => (failure = error) });
      for await (const part of result.fullStream) if (part.type === "error") failure = part.error;
      if (failure) throw failure;
      return made(result);
    },
    whole: async (say, tools) => made(await generateText(asked(say, tools))),
    typed: async (say) => {
      const output = Output.object({ schema: jsonSchema(SCHEMA) });
      return (await generateText({ ...asked(say), output })).output;
    },
    leave: async (say) => {
      const leaving = new AbortController();
      for await (const text of streamText({ ...asked(say), abortSignal: leaving.signal }).textStream) {
        leaving.abort();
        return text;
      }
    },
  };
};

// What is streamed and what is not have the same names, the former as promises.
async function made(result) {
  const [text, calls, thought, end] = await Promise.all([
    result.text,
    result.toolCalls,
    result.reasoningText,
    result.finishReason,
  ]);
  return {
    text,
    calls: calls.map((call) => ({ name: call.toolName, arguments: call.input })),
    thought: thought ?? null,
    end: ENDS[end] ?? end,
  };
}

const compatible = createOpenAICompatible({
  name: "parkway",
  apiKey: "none",
  baseURL: `${URL}/v1`,
  supportsStructuredOutputs: true,
});
const anthropic = createAnthropic({ apiKey: "none", baseURL: `${URL}/v1` });

await main({ "ai openai-compatible": clientOf(compatible(MODEL)), "ai anthropic": clientOf(anthropic("claude-any")) });
