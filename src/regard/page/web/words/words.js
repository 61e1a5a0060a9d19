/**
 * The page's sentences, one table per language, and the three voices in which they can be said.
 *
 * In: a key and what it speaks of. Out: a sentence. A key with a voice's name behind it ("head.bold:story") is for that voice; without
 * one it is for all. `{name}` is replaced by what is given; `[[term]]` is a word of the glossary.
 */

import { en } from "regard/words/en.js";
import { toursEn } from "regard/words/tours-en.js";

/** @type {{ [language: string]: Sentences }} */
export const LANGUAGES = { en: { ...en, ...toursEn } };

/** What the languages call themselves. @type {{ [language: string]: string }} */
export const NAMES = { en: "English", tr: "Türkçe", fr: "Français", de: "Deutsch", es: "Español" };

/**
 * A sentence with its braces, or undefined where the table has none.
 * @param {string} language @param {string} voice @param {string} key @returns {string | undefined}
 */
export function sentenceOf(language, voice, key) {
  const table = LANGUAGES[language] ?? LANGUAGES.en;
  return table[`${key}:${voice}`] ?? table[key];
}

/**
 * @param {string} language @param {string} voice
 * @returns {Say}
 */
export function sayer(language, voice) {
  return (key, given = {}) => {
    const sentence = sentenceOf(language, voice, key);
    if (sentence === undefined) throw new Error(`there is no sentence ${key}`);
    return sentence.replace(/\{(\w+)\}/g, (_, name) => String(given[name] ?? ""));
  };
}
